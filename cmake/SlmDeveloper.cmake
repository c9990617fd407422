# Settings for builds of slm itself: output folders, warnings, sanitizers, a compiler cache.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib")
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

# nvcc's host code has many warnings of -Wpedantic and -Wshadow.
add_compile_options("$<$<COMPILE_LANGUAGE:CXX,HIP>:-Wall;-Wextra;-Wpedantic;-Wshadow>")
# clang for HIP treats <algorithm> as a header of slm, and warns of a deprecated function in it.
add_compile_options("$<$<COMPILE_LANGUAGE:HIP>:-Wno-deprecated-declarations>")

if(SLM_SANITIZE)
  add_compile_options(-fsanitize=${SLM_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  # A null access ends the run anyway, and the address sanitizer finds the faults of the last two. Together they more than
  # double the build time.
  add_compile_options(-fno-sanitize=null,vptr,object-size,pointer-overflow)
  add_link_options(-fsanitize=${SLM_SANITIZE})
endif()

# Makes a target wait for the executables of a directory and those below it.
function(slm_depend_on_executables target directory)
  get_property(targets DIRECTORY "${directory}" PROPERTY BUILDSYSTEM_TARGETS)
  foreach(executable IN LISTS targets)
    get_target_property(type ${executable} TYPE)
    if(type STREQUAL "EXECUTABLE" AND NOT executable MATCHES "${ARGV2}")
      add_dependencies(${target} ${executable})
    endif()
  endforeach()
  get_property(directories DIRECTORY "${directory}" PROPERTY SUBDIRECTORIES)
  foreach(below IN LISTS directories)
    slm_depend_on_executables(${target} "${below}" ${ARGV2})
  endforeach()
endfunction()

# One cache serves every checkout: paths below the source folder are relative. The precompiled Catch2 header needs the
# two kinds of sloppiness.
find_program(SLM_CCACHE ccache)
if(SLM_CCACHE)
  set(launcher "${CMAKE_COMMAND}" -E env "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" CCACHE_NOHASHDIR=1
    CCACHE_SLOPPINESS=pch_defines,time_macros "${SLM_CCACHE}")
  foreach(language CXX CUDA)
    if(NOT CMAKE_${language}_COMPILER_LAUNCHER)
      set(CMAKE_${language}_COMPILER_LAUNCHER "${launcher}")
    endif()
  endforeach()
endif()
