# Two functions for projects that use slm; shipped with the package.
#
#   slm_add_executable(app BACKEND cpu|cuda|hip SOURCES main.cpp [MODELS My_Model ...])
#       An executable whose sources are compiled for a backend: as C++, as CUDA or as HIP. Sources never name a hardware
#       vendor. Call it outside of functions: the first GPU program of a project switches a language on.
#
#   slm_add_model([NAME] My_Model CONFIG path/config.json [OUTPUT file.hpp])
#       Makes the target slm_model_My_Model, through which sources find the compile-time config slm::configs::My_Model as
#       #include "slm_models/My_Model.hpp". The build writes it from a Hugging Face config.json, read as slm::load() reads
#       it, into <build>/slm_models/slm_models/My_Model.hpp (or OUTPUT).
include_guard(GLOBAL)
include("${CMAKE_CURRENT_LIST_DIR}/SlmGpu.cmake")

# Checks the arguments; sets _slm_backend, _slm_sources and _slm_models in the caller.
function(_slm_parse_executable target)
  set(backends cpu cuda hip)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "BACKEND" "SOURCES;MODELS")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "slm_add_executable(${target}): unknown arguments '${arg_UNPARSED_ARGUMENTS}'. "
      "Write slm_add_executable(${target} BACKEND cpu SOURCES main.cpp)")
  endif()
  if(NOT arg_SOURCES)
    message(FATAL_ERROR "slm_add_executable(${target}): no sources. Name at least one file after SOURCES")
  endif()
  if(NOT arg_BACKEND IN_LIST backends)
    list(JOIN backends ", " supported)
    message(FATAL_ERROR "slm_add_executable(${target}): backend '${arg_BACKEND}' is not supported by this version of "
      "slm. Supported: ${supported}")
  endif()
  foreach(model IN LISTS arg_MODELS)
    if(NOT TARGET slm_model_${model})
      message(FATAL_ERROR "slm_add_executable(${target}): there is no model '${model}'. "
        "Call slm_add_model(NAME ${model} CONFIG path/config.json) first")
    endif()
  endforeach()
  set(_slm_backend "${arg_BACKEND}" PARENT_SCOPE)
  set(_slm_sources "${arg_SOURCES}" PARENT_SCOPE)
  set(_slm_models "${arg_MODELS}" PARENT_SCOPE)
endfunction()

# The sources as a GPU compiler takes them: files of its own suffix, each of which includes one of them. So one source
# can be compiled for several backends, and its properties in the caller's project stay what they are.
function(_slm_gpu_sources out target suffix)
  set(wrappers "")
  set(index 0)
  foreach(source IN LISTS ARGN)
    if(source MATCHES "\\.(h|hpp|hh|inc)$")
      continue()
    endif()
    cmake_path(ABSOLUTE_PATH source NORMALIZE)
    cmake_path(GET source STEM name)
    set(wrapper "${CMAKE_CURRENT_BINARY_DIR}/slm_${target}/${name}_${index}.${suffix}")
    file(CONFIGURE OUTPUT "${wrapper}" CONTENT "#include \"@source@\"\n" @ONLY)
    list(APPEND wrappers "${wrapper}")
    math(EXPR index "${index} + 1")
  endforeach()
  set(${out} "${wrappers}" PARENT_SCOPE)
endfunction()

# Adds sources to a target, compiled for the backend.
function(_slm_target_sources target backend)
  if(backend STREQUAL "cpu")
    target_sources(${target} PRIVATE ${ARGN})
    return()
  endif()
  set(suffix cu)
  if(backend STREQUAL "hip")
    set(suffix hip)
  endif()
  _slm_gpu_sources(sources ${target} ${suffix} ${ARGN})
  target_sources(${target} PRIVATE ${sources})
  set_source_files_properties(${sources} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  set_target_properties(${target} PROPERTIES CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON HIP_STANDARD 20
    HIP_STANDARD_REQUIRED ON CUDA_EXTENSIONS OFF HIP_EXTENSIONS OFF)
  target_include_directories(${target} PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}")
endfunction()

function(_slm_add_parsed_executable target backend sources models)
  add_executable(${target})
  _slm_target_sources(${target} ${backend} ${sources})
  target_link_libraries(${target} PRIVATE slm::slm)
  foreach(model IN LISTS models)
    target_link_libraries(${target} PRIVATE slm_model_${model})
  endforeach()
endfunction()

# A macro, because it may have to switch on the language CUDA or HIP.
macro(slm_add_executable)
  _slm_parse_executable(${ARGV})
  if(NOT _slm_backend STREQUAL "cpu")
    slm_enable_gpu(${_slm_backend})
  endif()
  _slm_add_parsed_executable("${ARGV0}" "${_slm_backend}" "${_slm_sources}" "${_slm_models}")
endmacro()

# The program that reads a config.json: the library's own reader, compiled where it is first asked for.
function(_slm_add_model_header_tool)
  if(TARGET slm_model_header)
    return()
  endif()
  add_executable(slm_model_header EXCLUDE_FROM_ALL "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/model_header.cpp")
  target_link_libraries(slm_model_header PRIVATE slm::slm)
endfunction()

function(slm_add_model)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME;CONFIG;OUTPUT" "")
  if(NOT arg_NAME)
    list(POP_FRONT arg_UNPARSED_ARGUMENTS arg_NAME)
  endif()
  if(arg_UNPARSED_ARGUMENTS OR NOT arg_NAME OR NOT arg_CONFIG)
    message(FATAL_ERROR "slm_add_model: write slm_add_model(NAME My_Model CONFIG path/config.json [OUTPUT file.hpp])")
  endif()
  if(NOT arg_NAME MATCHES "^[A-Za-z][A-Za-z0-9_]*$")
    message(FATAL_ERROR "slm_add_model: '${arg_NAME}' is not a C++ name. Use letters, digits and underscores")
  endif()
  cmake_path(ABSOLUTE_PATH arg_CONFIG BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}" NORMALIZE OUTPUT_VARIABLE config_file)
  if(NOT EXISTS "${config_file}")
    message(FATAL_ERROR "slm_add_model: there is no file ${config_file}. Give the path of a Hugging Face config.json")
  endif()
  set(include_dir "${CMAKE_CURRENT_BINARY_DIR}/slm_models")
  set(header "${include_dir}/slm_models/${arg_NAME}.hpp")
  if(arg_OUTPUT)
    cmake_path(ABSOLUTE_PATH arg_OUTPUT BASE_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}" NORMALIZE OUTPUT_VARIABLE header)
    cmake_path(GET header PARENT_PATH include_dir)
  endif()
  cmake_path(GET header PARENT_PATH header_dir)
  file(MAKE_DIRECTORY "${header_dir}")

  _slm_add_model_header_tool()
  add_custom_command(OUTPUT "${header}"
    COMMAND slm_model_header "${config_file}" ${arg_NAME} "${header}"
    DEPENDS "${config_file}" COMMENT "Reading ${config_file}" VERBATIM)
  add_custom_target(slm_model_${arg_NAME}_header DEPENDS "${header}")
  add_library(slm_model_${arg_NAME} INTERFACE)
  add_dependencies(slm_model_${arg_NAME} slm_model_${arg_NAME}_header)
  target_include_directories(slm_model_${arg_NAME} INTERFACE "${include_dir}")
  target_link_libraries(slm_model_${arg_NAME} INTERFACE slm::slm)
endfunction()
