#!/usr/bin/env bash
# Add Keras 2, for scripts that train with Model.fit on several workers: tensorflow.sh PYTHON
#
# Without what it asks for: the whole of TensorFlow, in the place of tensorflow-cpu.
set -euo pipefail

"$1" -m pip install --quiet --disable-pip-version-check --no-deps "tf_keras==2.21.*"
