#!/bin/sh
# Stands in for ssh below mpirun: drops the options and the host, and runs the command on this machine.
while [ "${1#-}" != "$1" ]; do
    shift
done
shift
exec sh -c "$*"
