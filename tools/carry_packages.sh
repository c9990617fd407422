#!/bin/sh
# Unpacks the libraries for building slm into a folder, for a machine with compilers but without root rights:
#   tools/carry_packages.sh carried        on this machine, with Debian 12
#   CMAKE_PREFIX_PATH=$PWD/carried/usr bench/on_gpu        on the other machine
set -e
[ $# -eq 1 ] || { echo "usage: $0 FOLDER" >&2; exit 2; }
mkdir -p "$1/packages"
cd "$1/packages"
apt-get download nlohmann-json3-dev catch2 libcli11-dev libbenchmark-dev libbenchmark1debian zlib1g-dev
for package in *.deb; do dpkg-deb -x "$package" ..; done
cd ..
rm -r packages
du -sh . >&2
