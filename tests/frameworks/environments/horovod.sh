#!/usr/bin/env bash
# Build Horovod against the PyTorch and the MPI that are there: horovod.sh PYTHON
#
# Its last release asks for C++14; PyTorch's headers need C++17. Nothing else is changed.
set -euo pipefail

python=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
"$python" -m pip download --quiet --disable-pip-version-check --no-deps --no-build-isolation --no-binary :all: horovod==0.28.1
tar xzf horovod-0.28.1.tar.gz
cd horovod-0.28.1
sed -i 's/set(CMAKE_CXX_STANDARD 14)/set(CMAKE_CXX_STANDARD 17)/' CMakeLists.txt horovod/torch/CMakeLists.txt
export HOROVOD_WITH_PYTORCH=1 HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_MXNET=1
export HOROVOD_WITH_MPI=1 HOROVOD_WITHOUT_GLOO=1
PATH=$(dirname "$python"):$PATH
export PATH
"$python" -m pip install --quiet --disable-pip-version-check --no-build-isolation .
