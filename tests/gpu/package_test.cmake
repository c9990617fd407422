# Builds examples/embed_in_app for the GPU through an installed package.
cmake_minimum_required(VERSION 3.25)
file(REMOVE_RECURSE "${SCRATCH}")

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "failed (${status}): ${command}\n${output}")
  endif()
endfunction()

run("${CMAKE_COMMAND}" --install "${BINARY}" --prefix "${SCRATCH}/prefix")
run("${CMAKE_COMMAND}" -S "${SOURCE}/examples/embed_in_app" -B "${SCRATCH}/app" -G "${GENERATOR}"
  -D CMAKE_BUILD_TYPE=Debug "-DCMAKE_PREFIX_PATH=${SCRATCH}/prefix" -D EMBED_WAY=package -D "EMBED_BACKEND=${BACKEND}"
  "-DCMAKE_CUDA_ARCHITECTURES=${ARCHITECTURES}" "-DCMAKE_HIP_ARCHITECTURES=${ARCHITECTURES}"
  -D CMAKE_CUDA_FLAGS_DEBUG=-O1 -D CMAKE_HIP_FLAGS_DEBUG=-O1)
run("${CMAKE_COMMAND}" --build "${SCRATCH}/app" --parallel 2)

# On a device it completes a text; without one it reports the error and does not fall back to the CPU.
execute_process(COMMAND "${SCRATCH}/app/app" "${SOURCE}/examples/demo_pair/draft" "${SOURCE}/examples/demo_pair/target"
  RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
message("${output}")
if(NOT status EQUAL 0 AND NOT output MATCHES "gpu.no-device")
  message(FATAL_ERROR "the program ended with ${status}")
endif()
