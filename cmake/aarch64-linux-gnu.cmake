# Cross-compiles for AArch64 on Debian and runs the programs under qemu: packages g++-aarch64-linux-gnu, qemu-user.
# slm's libraries are header-only, so this machine's headers are used.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -cpu max -L /usr/aarch64-linux-gnu)
