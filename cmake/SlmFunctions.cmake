# Two functions for projects that use slm, and the target slm::compiled. Part of the package.
#
#   slm_add_executable(app BACKEND cpu|cuda|hip SOURCES main.cpp [MODELS My_Model ...] [COMPILED])
#       An executable whose sources are compiled for a backend: as C++, as CUDA or as HIP. Sources never name a hardware
#       vendor. Without a build type, the target is optimised as in Release. Call it outside functions: the first GPU
#       program of a project enables a language. COMPILED: the code common to all programs is compiled once into a
#       library of the build tree (docs/building.md, "Compiled once"). Other targets link slm::compiled instead of
#       slm::slm.
#
#   slm_add_model([NAME] My_Model CONFIG path/config.json [OUTPUT file.hpp])
#       Makes the target slm_model_My_Model, through which sources find the compile-time config slm::configs::My_Model as
#       #include "slm_models/My_Model.hpp". The build writes it from a Hugging Face config.json, read as slm::load() reads
#       it, into <build>/slm_models/slm_models/My_Model.hpp (or OUTPUT).
include_guard(GLOBAL)
include("${CMAKE_CURRENT_LIST_DIR}/SlmGpu.cmake")

# Checks the arguments; sets _slm_backend, _slm_sources, _slm_models and _slm_library in the caller.
function(_slm_parse_executable target)
  set(backends cpu cuda hip)
  cmake_parse_arguments(PARSE_ARGV 1 arg "COMPILED" "BACKEND" "SOURCES;MODELS")
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
      message(FATAL_ERROR "slm_add_executable(${target}): no model '${model}' is defined. "
        "Call slm_add_model(NAME ${model} CONFIG path/config.json) first")
    endif()
  endforeach()
  set(_slm_backend "${arg_BACKEND}" PARENT_SCOPE)
  set(_slm_sources "${arg_SOURCES}" PARENT_SCOPE)
  set(_slm_models "${arg_MODELS}" PARENT_SCOPE)
  set(_slm_library slm::slm PARENT_SCOPE)
  if(arg_COMPILED)
    set(_slm_library "slm_compiled_${arg_BACKEND}" PARENT_SCOPE)
  endif()
endfunction()

# The sources for a GPU compiler: files with its suffix that include one source each. One source can thus be compiled for
# several backends, and its properties in the caller's project stay unchanged.
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

# Without optimisation slm is 20 to 30 times slower. Without a build type, only this target of the caller's project gets
# the flags of Release. Debug is kept, with a warning.
function(_slm_optimise target)
  get_property(is_multi_config GLOBAL PROPERTY GENERATOR_IS_MULTI_CONFIG)
  set(type "${CMAKE_BUILD_TYPE}")
  if(is_multi_config)
    list(GET CMAKE_CONFIGURATION_TYPES 0 type)
    if(CMAKE_DEFAULT_BUILD_TYPE)
      set(type "${CMAKE_DEFAULT_BUILD_TYPE}")
    endif()
  endif()
  get_directory_property(options COMPILE_OPTIONS)
  string(TOUPPER "${type}" upper_type)
  if(" ${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${upper_type}} ${options}" MATCHES "[ ;]-O[^0]")
    return()
  endif()
  if(upper_type STREQUAL "DEBUG")
    get_property(is_said GLOBAL PROPERTY SLM_DEBUG_IS_SAID)
    if(NOT is_said)
      set_property(GLOBAL PROPERTY SLM_DEBUG_IS_SAID ON)
      message(WARNING "slm: '${target}' is built without optimisation (${type}) and will be 20 to 30 times slower than it "
        "can be. For speed configure with -DCMAKE_BUILD_TYPE=Release or RelWithDebInfo, or give Debug -Og")
    endif()
  elseif(type STREQUAL "" AND NOT " ${CMAKE_CXX_FLAGS} ${options}" MATCHES "[ ;]-O")
    message(STATUS "slm: no CMAKE_BUILD_TYPE is chosen, so '${target}' is optimised as in Release")
    foreach(language CXX CUDA HIP)
      separate_arguments(flags UNIX_COMMAND "${CMAKE_${language}_FLAGS_RELEASE}")
      target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:${language}>:${flags}>")
    endforeach()
  endif()
endfunction()

# The library of slm's own code is optimised in Debug builds too; only slm's developers debug it.
function(_slm_optimise_library target)
  if(NOT CMAKE_SOURCE_DIR STREQUAL "${slm_SOURCE_DIR}")
    target_compile_options(${target} PRIVATE "$<$<OR:$<CONFIG:Debug>,$<CONFIG:>>:-O2>")
  endif()
endfunction()

# The library of a backend's COMPILED programs: the sources with slm's functions.
function(_slm_add_compiled backend)
  set(library slm_compiled_${backend})
  if(TARGET ${library})
    return()
  endif()
  add_library(${library} STATIC EXCLUDE_FROM_ALL)
  _slm_optimise_library(${library})
  _slm_target_sources(${library} ${backend} "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/compiled.cpp")
  target_link_libraries(${library} PUBLIC slm::slm)
  if(backend STREQUAL "cpu")
    target_sources(${library} PRIVATE "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/compiled_adapters.cpp"
      "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/compiled_engine.cpp")
  else()
    target_link_libraries(${library} INTERFACE slm_compiled_cpu)  # the CPU kernels and adapters, compiled as C++
  endif()
  target_compile_definitions(${library} INTERFACE SLM_IMPLEMENTATION=0)
  set_target_properties(${library} PROPERTIES POSITION_INDEPENDENT_CODE ON)
endfunction()

_slm_add_compiled(cpu)
add_library(slm::compiled ALIAS slm_compiled_cpu)

function(_slm_add_parsed_executable target backend sources models library)
  add_executable(${target})
  _slm_optimise(${target})
  _slm_target_sources(${target} ${backend} ${sources})
  target_link_libraries(${target} PRIVATE ${library})
  if(NOT backend STREQUAL "cpu")
    target_link_libraries(${target} PRIVATE $<LINK_ONLY:slm_compiled_cpu>)
  endif()
  foreach(model IN LISTS models)
    target_link_libraries(${target} PRIVATE slm_model_${model})
  endforeach()
endfunction()

# A macro, because it may enable the language CUDA or HIP.
macro(slm_add_executable)
  _slm_parse_executable(${ARGV})
  if(NOT _slm_backend STREQUAL "cpu")
    slm_enable_gpu(${_slm_backend})
  endif()
  if(NOT _slm_library STREQUAL "slm::slm")
    _slm_add_compiled(${_slm_backend})
  endif()
  _slm_add_parsed_executable("${ARGV0}" "${_slm_backend}" "${_slm_sources}" "${_slm_models}" "${_slm_library}")
endmacro()

# The program that reads a config.json with the library's reader, compiled on first use.
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
    message(FATAL_ERROR "slm_add_model: ${config_file} does not exist. Use the path of a Hugging Face config.json")
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
