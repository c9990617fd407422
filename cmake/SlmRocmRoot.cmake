# Debian 12 has HIP 5.2.3 in separate packages: headers, a runtime library, device libraries without those of gfx11, and
# no compiler configured for them. This combines them with clang into one folder that clang++ --rocm-path and CMake accept
# as a ROCm installation. It uses links where possible and downloads nothing.
#
#   cmake -D ROOT=build/rocm [-D CLANG=/usr/lib/llvm-19/bin/clang++] -P cmake/SlmRocmRoot.cmake
#
# or, after include(): slm_make_rocm_root(ROOT CLANG PROBLEM_VARIABLE).
# The Debian packages: clang-19 lld-19 clang-tools-19 rocm-device-libs libamdhip64-dev

# The newest clang of Debian that HIP 5.2.3 supports; clang 20 and later need newer device libraries.
function(slm_find_hip_clang out)
  foreach(version 19 18 17 16 15)
    set(folder "/usr/lib/llvm-${version}/bin")
    if(EXISTS "${folder}/clang++" AND EXISTS "${folder}/clang-offload-bundler" AND EXISTS "${folder}/ld.lld")
      set(${out} "${folder}/clang++" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  set(${out} "" PARENT_SCOPE)
endfunction()

# `problem`: one sentence with the missing part; empty when `root` is ready.
function(slm_make_rocm_root root clang problem)
  set(${problem} "" PARENT_SCOPE)
  file(GLOB bitcode_folders /usr/lib/*/amdgcn/bitcode)
  file(GLOB runtimes /usr/lib/*/libamdhip64.so)
  set(absent "")
  if(NOT EXISTS "${clang}")
    list(APPEND absent "clang (packages clang-19, lld-19 and clang-tools-19)")
  endif()
  if(NOT bitcode_folders)
    list(APPEND absent "the device libraries (package rocm-device-libs)")
  endif()
  if(NOT runtimes OR NOT EXISTS /usr/include/hip/hip_runtime.h)
    list(APPEND absent "the HIP runtime (package libamdhip64-dev)")
  endif()
  if(absent)
    list(JOIN absent ", " absent)
    set(${problem} "missing: ${absent}" PARENT_SCOPE)
    return()
  endif()
  list(GET bitcode_folders 0 bitcode)
  list(GET runtimes 0 runtime)

  file(MAKE_DIRECTORY "${root}/include" "${root}/lib/cmake/hip-lang" "${root}/share/hip" "${root}/bin" "${root}/amdgcn/bitcode")
  file(CREATE_LINK /usr/include/hip "${root}/include/hip" SYMBOLIC)
  if(EXISTS /usr/include/hsa)
    file(CREATE_LINK /usr/include/hsa "${root}/include/hsa" SYMBOLIC)
  endif()
  file(CREATE_LINK "${runtime}" "${root}/lib/libamdhip64.so" SYMBOLIC)
  if(EXISTS /usr/share/hip/version)
    file(COPY /usr/share/hip/version DESTINATION "${root}/share/hip")
  endif()
  file(GLOB libraries "${bitcode}/*.bc")
  foreach(library IN LISTS libraries)
    cmake_path(GET library FILENAME name)
    file(CREATE_LINK "${library}" "${root}/amdgcn/bitcode/${name}" SYMBOLIC)
  endforeach()

  # The device libraries define an architecture by one number in a separate file.
  foreach(isa 1100 1101 1102 1103)
    set(file "${root}/amdgcn/bitcode/oclc_isa_version_${isa}.bc")
    if(EXISTS "${file}")
      continue()
    endif()
    math(EXPR number "${isa} / 100 * 1000 + ${isa} % 100")
    file(WRITE "${file}.ll" "target triple = \"amdgcn-amd-amdhsa\"\n"
      "@__oclc_ISA_version = linkonce_odr protected local_unnamed_addr addrspace(4) constant i32 ${number}, align 4\n")
    execute_process(COMMAND "${clang}" -x ir -target amdgcn-amd-amdhsa -nogpulib -c -emit-llvm -Wno-override-module
      "${file}.ll" -o "${file}" RESULT_VARIABLE status ERROR_VARIABLE output OUTPUT_VARIABLE output)
    if(NOT status EQUAL 0)
      set(${problem} "${clang} made no device library for gfx${isa}: ${output}" PARENT_SCOPE)
      return()
    endif()
  endforeach()

  # CMake 3.25 searches ROCm's package hip-lang inside the root; Debian's is in another folder.
  file(WRITE "${root}/lib/cmake/hip-lang/hip-lang-config.cmake" [[
if(NOT TARGET hip-lang::device)
  get_filename_component(_slm_rocm_root "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
  add_library(hip-lang::amdhip64 SHARED IMPORTED)
  set_target_properties(hip-lang::amdhip64 PROPERTIES
    IMPORTED_LOCATION "${_slm_rocm_root}/lib/libamdhip64.so" IMPORTED_SONAME "libamdhip64.so.5")
  add_library(hip-lang::device INTERFACE IMPORTED)
  set_target_properties(hip-lang::device PROPERTIES
    INTERFACE_LINK_LIBRARIES hip-lang::amdhip64
    INTERFACE_COMPILE_OPTIONS "$<$<COMPILE_LANGUAGE:HIP>:--rocm-path=${_slm_rocm_root}>"
    INTERFACE_LINK_OPTIONS "$<$<LINK_LANGUAGE:HIP>:--rocm-path=${_slm_rocm_root};--hip-link>")
endif()
set(_CMAKE_HIP_DEVICE_RUNTIME_TARGET "hip-lang::device")
]])
endfunction()

if(CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  if(NOT ROOT)
    message(FATAL_ERROR "write cmake -D ROOT=folder [-D CLANG=/usr/lib/llvm-19/bin/clang++] -P ${CMAKE_CURRENT_LIST_FILE}")
  endif()
  if(NOT CLANG)
    slm_find_hip_clang(CLANG)
  endif()
  cmake_path(ABSOLUTE_PATH ROOT NORMALIZE)
  slm_make_rocm_root("${ROOT}" "${CLANG}" problem)
  if(problem)
    message(FATAL_ERROR "no private ROCm root: ${problem}")
  endif()
  message("${CLANG}\n${ROOT}")
endif()
