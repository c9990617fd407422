# The installation.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

# The library: headers and CMake files. None of them depends on the machine.
set(slm_package_dir "${CMAKE_INSTALL_DATADIR}/cmake/slm")
configure_package_config_file(cmake/packages/slmConfig.cmake.in slmConfig.cmake INSTALL_DESTINATION "${slm_package_dir}")
write_basic_package_version_file(slmConfigVersion.cmake COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
configure_file(cmake/packages/slm.pc.in slm.pc @ONLY)
install(TARGETS slm_headers EXPORT slm-targets)
install(EXPORT slm-targets NAMESPACE slm:: FILE slmTargets.cmake DESTINATION "${slm_package_dir}" COMPONENT dev)
install(FILES
  "${CMAKE_CURRENT_BINARY_DIR}/slmConfig.cmake" "${CMAKE_CURRENT_BINARY_DIR}/slmConfigVersion.cmake"
  cmake/SlmFunctions.cmake cmake/SlmGpu.cmake cmake/SlmRocmRoot.cmake cmake/model_header.cpp
  cmake/compiled.cpp cmake/compiled_adapters.cpp cmake/compiled_engine.cpp DESTINATION "${slm_package_dir}" COMPONENT dev)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/slm.pc" DESTINATION "${CMAKE_INSTALL_DATADIR}/pkgconfig" COMPONENT dev)
install(DIRECTORY include/slm DESTINATION include COMPONENT dev FILES_MATCHING PATTERN "*.hpp" PATTERN "*.inc")
install(FILES LICENSE DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/libslm-dev" RENAME copyright COMPONENT dev)

# On request, the program with its data files (tools/cli/data_path.hpp):
# cmake --install build/cpu --component program
if(TARGET slm_program)
  set(asked COMPONENT program EXCLUDE_FROM_ALL)
  set(slm_data_dir "${CMAKE_INSTALL_DATADIR}/slm")
  install(TARGETS slm_program DESTINATION "${CMAKE_INSTALL_BINDIR}" ${asked})
  foreach(folder draft draft-int4 target target-int4 prompts)
    install(DIRECTORY "examples/demo_pair/${folder}" DESTINATION "${slm_data_dir}/examples/demo_pair" ${asked})
  endforeach()
  install(FILES bench/command/plots.py bench/command/sandbox.py DESTINATION "${slm_data_dir}/bench/command" ${asked})
  foreach(script peer gguf_of peer_llama_cpp peer_transformers)
    install(FILES bench/peers/${script}.py DESTINATION "${slm_data_dir}/bench/peers" ${asked})
  endforeach()
  install(FILES LICENSE DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/slm" RENAME copyright ${asked})
endif()
