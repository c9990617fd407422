# Runs a port like vcpkg, with simulations of the vcpkg functions that slm's port calls:
#   cmake -D PORT=<folder of the port> -D SCRATCH=<folder> -P played_vcpkg.cmake
cmake_minimum_required(VERSION 3.25)
file(REMOVE_RECURSE "${SCRATCH}")
set(CURRENT_PACKAGES_DIR "${SCRATCH}/packages")

function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY OUTPUT_QUIET)
endfunction()

function(vcpkg_cmake_configure)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "SOURCE_PATH" "OPTIONS")
  run("${CMAKE_COMMAND}" -S "${arg_SOURCE_PATH}" -B "${SCRATCH}/build" -G Ninja
    "-DCMAKE_INSTALL_PREFIX=${CURRENT_PACKAGES_DIR}" ${arg_OPTIONS})
endfunction()

function(vcpkg_cmake_install)
  run("${CMAKE_COMMAND}" --build "${SCRATCH}/build" --target install)
endfunction()

function(vcpkg_cmake_config_fixup)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "CONFIG_PATH" "")
  file(COPY "${CURRENT_PACKAGES_DIR}/${arg_CONFIG_PATH}/" DESTINATION "${CURRENT_PACKAGES_DIR}/share/slm")
  cmake_path(GET arg_CONFIG_PATH PARENT_PATH parent)
  file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/${parent}")
endfunction()

function(vcpkg_fixup_pkgconfig)
endfunction()

function(vcpkg_install_copyright)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "FILE_LIST" "")
  file(COPY_FILE "${arg_FILE_LIST}" "${CURRENT_PACKAGES_DIR}/share/slm/copyright")
endfunction()

include("${PORT}/portfile.cmake")
