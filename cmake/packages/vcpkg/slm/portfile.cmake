# The port of this checkout: vcpkg install slm --overlay-ports=cmake/packages/vcpkg
set(VCPKG_BUILD_TYPE release)  # header-only: nothing to compile
cmake_path(SET SOURCE_PATH NORMALIZE "${CMAKE_CURRENT_LIST_DIR}/../../../..")

vcpkg_cmake_configure(SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS -DSLM_BUILD_TESTS=OFF -DSLM_BUILD_EXAMPLES=OFF -DSLM_BUILD_BENCH=OFF -DSLM_BUILD_C_API=OFF)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH share/cmake/slm)
vcpkg_fixup_pkgconfig()
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/share/doc")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
