# slm_add_executable and slm_add_model with correct and wrong calls, each in a separate configure run.
cmake_minimum_required(VERSION 3.25)
file(REMOVE_RECURSE "${SCRATCH}")

set(failures 0)
set(cases 0)

function(fail what)
  message("FAILED: ${what}")
  math(EXPR failures "${failures} + 1")
  set(failures ${failures} PARENT_SCOPE)
endfunction()

# Runs a command; it must fail with `expected` in its message, or succeed when expected is OK.
function(check expected what)
  execute_process(COMMAND ${ARGN} OUTPUT_VARIABLE output ERROR_VARIABLE output RESULT_VARIABLE status)
  string(REGEX REPLACE "[ \n]+" " " flat "${output}")
  string(FIND "${flat}" "${expected}" found)
  if((expected STREQUAL "OK" AND NOT status EQUAL 0) OR (NOT expected STREQUAL "OK" AND (status EQUAL 0 OR found LESS 0)))
    fail("${what}\nexpected: ${expected}\n${output}")
  endif()
  set(failures ${failures} PARENT_SCOPE)
  set(output "${flat}" PARENT_SCOPE)
endfunction()

# Configures ${project} with these lines and additional arguments.
function(configure_case expected lines)
  math(EXPR cases "${cases} + 1")
  set(project "${SCRATCH}/case${cases}")
  file(WRITE "${project}/main.cpp" "int main() {}\n")
  file(WRITE "${project}/CMakeLists.txt" "cmake_minimum_required(VERSION 3.25)\nproject(user LANGUAGES CXX)\n"
    "set(FETCHCONTENT_FULLY_DISCONNECTED ON)\nadd_subdirectory(\"${SOURCE}\" slm)\n${lines}\n")
  file(WRITE "${project}/llama.json" [[{"hidden_size": 64, "intermediate_size": 96,
    "num_attention_heads": 4, "num_hidden_layers": 2, "num_key_value_heads": 2, "vocab_size": 100}]])
  check("${expected}" "${lines}" "${CMAKE_COMMAND}" -S "${project}" -B "${project}/build" -G "${GENERATOR}"
    -D "CMAKE_CXX_COMPILER=${COMPILER}" -D CMAKE_CXX_COMPILER_WORKS=1 -D CMAKE_EXPORT_COMPILE_COMMANDS=ON ${ARGN})
  foreach(variable cases failures project output)
    set(${variable} "${${variable}}" PARENT_SCOPE)
  endforeach()
endfunction()

set(app "slm_add_executable(app BACKEND cpu SOURCES main.cpp)")
configure_case("OK" "${app}")
configure_case("backend 'vulkan' is not supported by this version of slm. Supported: cpu, cuda, hip"
  "slm_add_executable(app BACKEND vulkan SOURCES main.cpp)")
configure_case("the CUDA compiler /nowhere/nvcc does not exist"
  "set(CMAKE_CUDA_COMPILER /nowhere/nvcc)\nslm_add_executable(app BACKEND cuda SOURCES main.cpp)")
configure_case("the HIP compiler /nowhere/clang++ does not exist"
  "set(CMAKE_HIP_COMPILER /nowhere/clang++)\nslm_add_executable(app BACKEND hip SOURCES main.cpp)")
configure_case("this build tree already compiles for hip, and now something asks for cuda"
  "_slm_claim_vendor(hip)\nslm_add_executable(app BACKEND cuda SOURCES main.cpp)")
configure_case("no sources. Name at least one file" "slm_add_executable(app BACKEND cuda)")
configure_case("backend '' is not supported" "slm_add_executable(app SOURCES main.cpp)")
configure_case("no sources" "slm_add_executable(app BACKEND cpu)")
configure_case("unknown arguments 'main.cpp'" "slm_add_executable(app main.cpp BACKEND cpu SOURCES main.cpp)")
configure_case("no model 'Mine' is defined" "slm_add_executable(app BACKEND cpu SOURCES main.cpp MODELS Mine)")
configure_case("OK" "slm_add_model(NAME Mine CONFIG llama.json OUTPUT \${CMAKE_BINARY_DIR}/mine.hpp)")
configure_case("is not a C++ name" "slm_add_model(NAME 7B CONFIG llama.json)")
configure_case("OK" "slm_add_model(Mine CONFIG llama.json)")
configure_case("write slm_add_model(NAME" "slm_add_model(Mine llama.json)")
configure_case("write slm_add_model(NAME" "slm_add_model(NAME Mine CONFIG llama.json BACKEND cpu)")
configure_case("nothing.json does not exist" "slm_add_model(NAME Mine CONFIG nothing.json)")

# The flags of main.cpp: without a build type those of Release; else as chosen, with a warning for Debug.
function(flags_case expected warns lines)
  configure_case("OK" "${lines}\n${app}" ${ARGN})
  file(READ "${project}/build/compile_commands.json" commands)
  string(REGEX MATCH "\"command\": [^\n]*main.cpp" command "${commands}")
  string(REGEX MATCHALL " (-O[^ ]*|-g|-DNDEBUG)" flags "${command}")
  string(STRIP "${flags}" flags)
  if(NOT flags STREQUAL expected)
    fail("'${lines} ${ARGN}': compiled with '${flags}', expected '${expected}'")
  endif()
  string(FIND "${output}" "is built without optimisation" found)
  if((warns AND found LESS 0) OR (NOT warns AND NOT found LESS 0))
    fail("'${lines} ${ARGN}': a warning is ${warns}\n${output}")
  endif()
  foreach(variable cases failures)
    set(${variable} "${${variable}}" PARENT_SCOPE)
  endforeach()
endfunction()

flags_case("-O3; -DNDEBUG" NO "")
flags_case("-O3; -DNDEBUG" NO "" -D CMAKE_BUILD_TYPE=Release)
flags_case("-O2; -g; -DNDEBUG" NO "" -D CMAKE_BUILD_TYPE=RelWithDebInfo)
flags_case("-O1" NO "" -D CMAKE_CXX_FLAGS=-O1)
flags_case("-O0" NO "add_compile_options(-O0)")
flags_case("-g" YES "" -D CMAKE_BUILD_TYPE=Debug)
flags_case("-g; -Og" NO "add_compile_options(-Og)" -D CMAKE_BUILD_TYPE=Debug)
flags_case("" NO "" -D CMAKE_BUILD_TYPE=None)

# A config.json is read when a target that includes its header is built.
configure_case("OK" "slm_add_model(NAME Mine CONFIG llama.json)
  slm_add_executable(app BACKEND cpu SOURCES main.cpp MODELS Mine)")
set(shape [["hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_hidden_layers": 2]])
function(build_case expected activation json)
  file(WRITE "${project}/llama.json" "${json}")
  file(WRITE "${project}/main.cpp" "#include \"slm_models/Mine.hpp\"\n"
    "static_assert(slm::configs::Mine::value.activation == slm::ActivationKind::${activation});\nint main() {}\n")
  check("${expected}" "${json}" "${CMAKE_COMMAND}" --build "${project}/build" --target app)
  math(EXPR cases "${cases} + 1")
  set(cases ${cases} PARENT_SCOPE)
  set(failures ${failures} PARENT_SCOPE)
endfunction()
build_case("OK" silu "{${shape}, \"vocab_size\": 100}")
build_case("OK" gelu_tanh "{${shape}, \"vocab_size\": 100, \"hidden_act\": \"gelu_new\"}")
build_case("slm_add_model: '${project}/llama.json' has no field 'vocab_size'" silu "{${shape}}")
build_case("[json.malformed]" silu "{\"model_type\": \"lla")
build_case("OK" silu "{${shape}, \"vocab_size\": 100}")

message("${cases} cases, ${failures} wrong")
if(failures)
  message(FATAL_ERROR "slm_add_executable or slm_add_model failed")
endif()
