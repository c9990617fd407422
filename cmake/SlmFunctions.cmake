# Two functions for projects that use slm; shipped with the package.
#
#   slm_add_executable(app BACKEND cpu SOURCES main.cpp [MODELS My_Model ...])
#       An executable whose sources are compiled for a backend. Sources never name a hardware vendor.
#
#   slm_add_model([NAME] My_Model CONFIG path/config.json [OUTPUT file.hpp])
#       Writes the compile-time config slm::configs::My_Model from a Hugging Face config.json, at configure time, into
#       <build>/slm_models/slm_models/My_Model.hpp (or OUTPUT), and makes the target slm_model_My_Model, through which
#       sources find it as #include "slm_models/My_Model.hpp".
include_guard(GLOBAL)

function(slm_add_executable target)
  set(backends cpu)
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

  add_executable(${target} ${arg_SOURCES})
  target_link_libraries(${target} PRIVATE slm::slm)
  foreach(model IN LISTS arg_MODELS)
    if(NOT TARGET slm_model_${model})
      message(FATAL_ERROR "slm_add_executable(${target}): there is no model '${model}'. "
        "Call slm_add_model(NAME ${model} CONFIG path/config.json) first")
    endif()
    target_link_libraries(${target} PRIVATE slm_model_${model})
  endforeach()
endfunction()

# Reads a positive integer of a config.json; `fallback`, when given, stands in for an absent or null field.
function(_slm_config_integer out json file field)
  string(JSON value ERROR_VARIABLE problem GET "${json}" "${field}")
  if((problem OR value STREQUAL "") AND ARGC GREATER 4)
    set(value "${ARGV4}")
  elseif(problem)
    message(FATAL_ERROR "slm_add_model: ${file} has no field '${field}'. Use the config.json of a Llama-family model")
  endif()
  if(NOT value MATCHES "^[1-9][0-9]*$" OR value GREATER 16777216)
    message(FATAL_ERROR "slm_add_model: ${file}: '${field}' is '${value}', expected an integer from 1 to 16777216")
  endif()
  set(${out} "${value}" PARENT_SCOPE)
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
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${config_file}")

  file(READ "${config_file}" json)
  string(JSON kind ERROR_VARIABLE problem TYPE "${json}")
  if(problem OR NOT kind STREQUAL "OBJECT")
    message(FATAL_ERROR "slm_add_model: ${config_file} is not a JSON object. Give a Hugging Face config.json")
  endif()
  string(JSON model_type ERROR_VARIABLE problem GET "${json}" model_type)
  if(NOT problem AND NOT model_type STREQUAL "llama")
    message(FATAL_ERROR "slm_add_model: ${config_file} is of model_type '${model_type}', expected 'llama'. "
      "This version of slm runs Llama-family models")
  endif()

  _slm_config_integer(layers "${json}" "${config_file}" num_hidden_layers)
  _slm_config_integer(hidden "${json}" "${config_file}" hidden_size)
  _slm_config_integer(ffn "${json}" "${config_file}" intermediate_size)
  _slm_config_integer(heads "${json}" "${config_file}" num_attention_heads)
  _slm_config_integer(kv_heads "${json}" "${config_file}" num_key_value_heads ${heads})
  math(EXPR even_split "${hidden} / ${heads}")
  _slm_config_integer(head_dim "${json}" "${config_file}" head_dim ${even_split})
  _slm_config_integer(vocab "${json}" "${config_file}" vocab_size)

  set(include_dir "${CMAKE_CURRENT_BINARY_DIR}/slm_models")
  set(header "${include_dir}/slm_models/${arg_NAME}.hpp")
  if(arg_OUTPUT)
    cmake_path(ABSOLUTE_PATH arg_OUTPUT BASE_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}" NORMALIZE OUTPUT_VARIABLE header)
    cmake_path(GET header PARENT_PATH include_dir)
  endif()
  set(name "${arg_NAME}")
  configure_file("${CMAKE_CURRENT_FUNCTION_LIST_DIR}/slm_model.hpp.in" "${header}" @ONLY)

  add_library(slm_model_${arg_NAME} INTERFACE)
  target_include_directories(slm_model_${arg_NAME} INTERFACE "${include_dir}")
  target_link_libraries(slm_model_${arg_NAME} INTERFACE slm::slm)
endfunction()
