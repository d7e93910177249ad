#!/bin/sh
# Make the two environments of the speed comparison: benchmarks/.peers/pfl and .peers/flower.
# They are apart because the two packages ask for different versions of the same libraries.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
home="$here/../.peers"
python=${PYTHON:-python3}
mkdir -p "$home"
# The environments are rebuilt from this script, never committed.
printf '*\n' > "$home/.gitignore"

make_env() {  # name, then packages; torch first and pinned: a bare torch pulls gigabytes of CUDA
  name=$1
  shift
  "$python" -m venv "$home/$name"
  "$home/$name/bin/pip" install --quiet torch==2.13.0
  "$home/$name/bin/pip" install --quiet torch==2.13.0 "$@"
  "$home/$name/bin/pip" freeze > "$home/$name.freeze.txt"
}

make_env pfl "pfl[pytorch]==0.6.0"
make_env flower "flwr[simulation]==1.41.0"
echo "ready: $home/pfl and $home/flower"
