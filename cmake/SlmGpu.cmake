# Finds the toolkit of a GPU vendor and enables its language. A macro, because CMake requires enable_language() outside
# functions, in the highest folder whose targets use the language.
#
#   slm_enable_gpu(cuda|hip)
#
# Defaults: CMAKE_CUDA_ARCHITECTURES 80-real and 90; CMAKE_HIP_ARCHITECTURES the GPUs of this machine, or gfx90a, gfx1100
# and gfx1103 without a GPU.
include_guard(GLOBAL)
include("${CMAKE_CURRENT_LIST_DIR}/SlmRocmRoot.cmake")

# One vendor per build tree: languages, flags and kernel entry points of the two cannot be combined.
function(_slm_claim_vendor backend)
  get_property(vendor GLOBAL PROPERTY SLM_GPU_VENDOR)
  if(vendor AND NOT vendor STREQUAL backend)
    message(FATAL_ERROR "slm: this build tree already compiles for ${vendor}, and now something asks for ${backend}. "
      "Use a build tree for each: cmake -B build/${vendor} ..., cmake -B build/${backend} ...")
  endif()
  set_property(GLOBAL PROPERTY SLM_GPU_VENDOR "${backend}")
endfunction()

function(_slm_find_nvcc)
  if(CMAKE_CUDA_COMPILER)
    if(IS_ABSOLUTE "${CMAKE_CUDA_COMPILER}" AND NOT EXISTS "${CMAKE_CUDA_COMPILER}")
      message(FATAL_ERROR "slm: the CUDA compiler ${CMAKE_CUDA_COMPILER} does not exist. Set CMAKE_CUDA_COMPILER to nvcc, "
        "12.0 or newer")
    endif()
  elseif(NOT DEFINED ENV{CUDACXX})
    find_program(SLM_NVCC nvcc HINTS ENV CUDA_PATH /usr/local/cuda PATH_SUFFIXES bin)
    if(NOT SLM_NVCC)
      message(FATAL_ERROR "slm: BACKEND cuda needs NVIDIA's compiler, but nvcc is neither on the PATH nor in "
        "/usr/local/cuda. Install the CUDA toolkit, 12.0 or newer, or set CMAKE_CUDA_COMPILER")
    endif()
    set(CMAKE_CUDA_COMPILER "${SLM_NVCC}" CACHE FILEPATH "CUDA compiler")
  endif()
endfunction()

# CMake finds a ROCm installation. Without one, Debian's packages are combined in the build tree.
function(_slm_find_hip)
  if(CMAKE_HIP_COMPILER)
    if(IS_ABSOLUTE "${CMAKE_HIP_COMPILER}" AND NOT EXISTS "${CMAKE_HIP_COMPILER}")
      message(FATAL_ERROR "slm: the HIP compiler ${CMAKE_HIP_COMPILER} does not exist. Set CMAKE_HIP_COMPILER to ROCm's clang++")
    endif()
  elseif(NOT DEFINED ENV{HIPCXX})
    find_program(SLM_HIPCONFIG hipconfig HINTS ENV ROCM_PATH /opt/rocm PATH_SUFFIXES bin)
    file(REAL_PATH "${SLM_HIPCONFIG}" hipconfig)
    if(NOT SLM_HIPCONFIG OR hipconfig MATCHES "^/usr/")  # the one in /usr is Debian's, which CMake cannot use
      slm_find_hip_clang(clang)
      slm_make_rocm_root("${CMAKE_BINARY_DIR}/slm-rocm" "${clang}" problem)
      if(problem)
        message(FATAL_ERROR "slm: BACKEND hip needs ROCm. None is in /opt/rocm or ROCM_PATH, and Debian's is "
          "incomplete: ${problem}. Install ROCm, or on Debian 12: "
          "apt-get install clang-19 lld-19 clang-tools-19 rocm-device-libs libamdhip64-dev")
      endif()
      set(CMAKE_HIP_COMPILER "${clang}" CACHE FILEPATH "HIP compiler")
      set(CMAKE_HIP_COMPILER_ROCM_ROOT "${CMAKE_BINARY_DIR}/slm-rocm" CACHE PATH "ROCm, made of Debian's packages")
      set(CMAKE_HIP_FLAGS "--rocm-path=${CMAKE_BINARY_DIR}/slm-rocm" CACHE STRING "Flags of the HIP compiler")
    endif()
  endif()
  if(NOT CMAKE_HIP_ARCHITECTURES AND NOT DEFINED ENV{HIPARCHS})
    find_program(SLM_ROCM_AGENTS rocm_agent_enumerator HINTS ENV ROCM_PATH /opt/rocm PATH_SUFFIXES bin)
    if(SLM_ROCM_AGENTS)
      execute_process(COMMAND "${SLM_ROCM_AGENTS}" OUTPUT_VARIABLE agents ERROR_QUIET)
    endif()
    string(REGEX MATCHALL "gfx[0-9a-f]+" agents "${agents}")
    list(REMOVE_DUPLICATES agents)
    list(REMOVE_ITEM agents gfx000)  # the processor
    if(NOT agents)
      set(agents gfx90a gfx1100 gfx1103)
    endif()
    set(CMAKE_HIP_ARCHITECTURES "${agents}" CACHE STRING "AMD architectures")
  endif()
endfunction()

macro(slm_enable_gpu slm_gpu_backend)
  _slm_claim_vendor("${slm_gpu_backend}")
  if("${slm_gpu_backend}" STREQUAL "cuda" AND NOT CMAKE_CUDA_COMPILER_LOADED)
    _slm_find_nvcc()
    if(NOT CMAKE_CUDA_ARCHITECTURES AND NOT DEFINED ENV{CUDAARCHS})
      set(CMAKE_CUDA_ARCHITECTURES 80-real 90 CACHE STRING "NVIDIA architectures" FORCE)
    endif()
    enable_language(CUDA)
    if(CMAKE_CUDA_COMPILER_ID STREQUAL "NVIDIA" AND CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.0)
      message(FATAL_ERROR "slm: nvcc ${CMAKE_CUDA_COMPILER_VERSION} does not support C++20. Use CUDA 12.0 or newer")
    endif()
    if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake before 3.26 does not know that nvcc 12 supports C++20
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
      set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
    endif()
  elseif("${slm_gpu_backend}" STREQUAL "hip" AND NOT CMAKE_HIP_COMPILER_LOADED)
    _slm_find_hip()
    enable_language(HIP)
  endif()
endmacro()
