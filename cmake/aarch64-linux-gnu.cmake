# Cross-compiles for AArch64 on Debian, where what is built runs under qemu: packages g++-aarch64-linux-gnu, qemu-user.
# The libraries that slm uses are headers, and those of this machine do.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -cpu max -L /usr/aarch64-linux-gnu)
