# What slm_add_executable and slm_add_model say to wrong calls, each in a configure run of its own; no compiler runs.
cmake_minimum_required(VERSION 3.25)
file(REMOVE_RECURSE "${SCRATCH}")

set(failures 0)
set(cases 0)

# Configures a project of these lines; it must end with `expected` in its message, or succeed when expected is OK.
function(configure_case expected lines)
  math(EXPR cases "${cases} + 1")
  set(cases ${cases} PARENT_SCOPE)
  set(project "${SCRATCH}/case${cases}")
  file(WRITE "${project}/main.cpp" "int main() {}\n")
  file(WRITE "${project}/CMakeLists.txt" "cmake_minimum_required(VERSION 3.25)\nproject(user LANGUAGES CXX)\n"
    "set(FETCHCONTENT_FULLY_DISCONNECTED ON)\nadd_subdirectory(\"${SOURCE}\" slm)\n${lines}\n")
  file(WRITE "${project}/llama.json" [[{"hidden_size": 64, "intermediate_size": 96,
    "num_attention_heads": 4, "num_hidden_layers": 2, "num_key_value_heads": 2, "vocab_size": 100}]])
  file(WRITE "${project}/qwen.json" [[{"model_type": "qwen3", "hidden_size": 64, "intermediate_size": 96,
    "num_attention_heads": 4, "num_hidden_layers": 2, "head_dim": 32, "attention_bias": true, "vocab_size": 100}]])
  file(WRITE "${project}/gpt.json" [[{"model_type": "gpt2"}]])
  file(WRITE "${project}/absent.json" [[{"model_type": "llama", "hidden_size": 64}]])
  file(WRITE "${project}/negative.json" [[{"model_type": "llama", "num_hidden_layers": -2}]])
  file(WRITE "${project}/absurd.json" [[{"model_type": "llama", "num_hidden_layers": 99999999999}]])
  file(WRITE "${project}/list.json" "[1, 2]")
  file(WRITE "${project}/torn.json" [[{"model_type": "lla]])
  execute_process(COMMAND "${CMAKE_COMMAND}" -S "${project}" -B "${project}/build" -G "${GENERATOR}"
    -D "CMAKE_CXX_COMPILER=${COMPILER}" -D CMAKE_CXX_COMPILER_WORKS=1
    OUTPUT_VARIABLE output ERROR_VARIABLE output RESULT_VARIABLE status)
  string(REGEX REPLACE "[ \n]+" " " flat "${output}")
  string(FIND "${flat}" "${expected}" found)
  if((expected STREQUAL "OK" AND NOT status EQUAL 0) OR (NOT expected STREQUAL "OK" AND (status EQUAL 0 OR found LESS 0)))
    message("FAILED: ${lines}\nexpected: ${expected}\n${output}")
    math(EXPR failures "${failures} + 1")
    set(failures ${failures} PARENT_SCOPE)
  endif()
endfunction()

configure_case("OK" "slm_add_executable(app BACKEND cpu SOURCES main.cpp)")
configure_case("backend 'vulkan' is not supported by this version of slm. Supported: cpu, cuda, hip"
  "slm_add_executable(app BACKEND vulkan SOURCES main.cpp)")
configure_case("there is no CUDA compiler /nowhere/nvcc"
  "set(CMAKE_CUDA_COMPILER /nowhere/nvcc)\nslm_add_executable(app BACKEND cuda SOURCES main.cpp)")
configure_case("there is no HIP compiler /nowhere/clang++"
  "set(CMAKE_HIP_COMPILER /nowhere/clang++)\nslm_add_executable(app BACKEND hip SOURCES main.cpp)")
configure_case("this build tree already compiles for hip, and now something asks for cuda"
  "_slm_claim_vendor(hip)\nslm_add_executable(app BACKEND cuda SOURCES main.cpp)")
configure_case("no sources. Name at least one file" "slm_add_executable(app BACKEND cuda)")
configure_case("backend '' is not supported" "slm_add_executable(app SOURCES main.cpp)")
configure_case("no sources" "slm_add_executable(app BACKEND cpu)")
configure_case("unknown arguments 'main.cpp'" "slm_add_executable(app main.cpp BACKEND cpu SOURCES main.cpp)")
configure_case("there is no model 'Mine'" "slm_add_executable(app BACKEND cpu SOURCES main.cpp MODELS Mine)")
configure_case("OK" "slm_add_model(NAME Mine CONFIG llama.json)\nslm_add_executable(app BACKEND cpu SOURCES main.cpp MODELS Mine)")
configure_case("OK" "slm_add_model(NAME Mine CONFIG llama.json OUTPUT \${CMAKE_BINARY_DIR}/mine.hpp)")
configure_case("is not a C++ name" "slm_add_model(NAME 7B CONFIG llama.json)")
configure_case("OK" "slm_add_model(Mine CONFIG llama.json)")
configure_case("write slm_add_model(NAME" "slm_add_model(Mine llama.json)")
configure_case("write slm_add_model(NAME" "slm_add_model(NAME Mine CONFIG llama.json BACKEND cpu)")
configure_case("there is no file" "slm_add_model(NAME Mine CONFIG nothing.json)")
configure_case("expected llama, mistral, phi3" "slm_add_model(NAME Mine CONFIG gpt.json)")
configure_case("has no field 'num_hidden_layers'" "slm_add_model(NAME Mine CONFIG absent.json)")
configure_case("'num_hidden_layers' is '-2'" "slm_add_model(NAME Mine CONFIG negative.json)")
configure_case("expected an integer from 1 to 16777216" "slm_add_model(NAME Mine CONFIG absurd.json)")
configure_case("is not a JSON object" "slm_add_model(NAME Mine CONFIG list.json)")
configure_case("is not a JSON object" "slm_add_model(NAME Mine CONFIG torn.json)")
configure_case("OK" "slm_add_model(NAME Mine CONFIG qwen.json)")
set(qwen "${SCRATCH}/case${cases}/build/slm_models/slm_models/Mine.hpp")

set(header "${SCRATCH}/case11/build/slm_models/slm_models/Mine.hpp")
file(READ "${header}" text)
string(REGEX REPLACE "[ \n]+" " " text "${text}")
if(NOT text MATCHES "{.layers = 2, .hidden = 64, .ffn = 96, .heads = 4, .kv_heads = 2, .head_dim = 16, .vocab = 100}")
  message("FAILED: ${header} holds ${text}")
  math(EXPR failures "${failures} + 1")
endif()

file(READ "${qwen}" text)
string(REGEX REPLACE "[ \n]+" " " text "${text}")
if(NOT text MATCHES ".vocab = 100, .qk_norm = QkNorm::per_head, .attention_bias = AttentionBias::all}")
  message("FAILED: ${qwen} holds ${text}")
  math(EXPR failures "${failures} + 1")
endif()

message("${cases} configure runs, ${failures} wrong")
if(failures)
  message(FATAL_ERROR "slm_add_executable or slm_add_model answered wrongly")
endif()
