# SPDX-License-Identifier: Apache-2.0
# CUDA is optional. Sets SMLA_HAVE_CUDA; smla_cuda_flags carries the architectures, the language standard and the warnings of every .cu file.
set(SMLA_HAVE_CUDA OFF)
if(SMLA_CUDA STREQUAL "OFF")
  message(STATUS "CUDA: off (SMLA_CUDA=OFF): the CPU tool only")
else()
  include(CheckLanguage)
  set(CMAKE_CUDA_ARCHITECTURES OFF)   # explicit -gencode below
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    set(SMLA_HAVE_CUDA ON)
    message(STATUS "CUDA: ${CMAKE_CUDA_COMPILER} ${CMAKE_CUDA_COMPILER_VERSION}, architectures ${SMLA_CUDA_ARCHS}")
  elseif(SMLA_CUDA STREQUAL "ON")
    message(FATAL_ERROR "SMLA_CUDA=ON, but no CUDA compiler was found: put nvcc on PATH or set CMAKE_CUDA_COMPILER")
  else()
    message(STATUS "CUDA: no compiler found: the CPU tool only (put nvcc on PATH, or set SMLA_CUDA=OFF to silence this)")
  endif()
endif()

if(SMLA_HAVE_CUDA)
  # smla_cuda_gencode(OUT arch...): 90a -> -gencode=arch=compute_90a,code=sm_90a; 120f also as PTX, the last resort of later GPUs.
  function(smla_cuda_gencode out)
    set(flags)
    foreach(arch ${ARGN})
      list(APPEND flags -gencode=arch=compute_${arch},code=sm_${arch})
      if(arch STREQUAL "120f")
        list(APPEND flags -gencode=arch=compute_120,code=compute_120)
      endif()
    endforeach()
    set(${out} ${flags} PARENT_SCOPE)
  endfunction()

  # -std=c++20 by hand: CMake before 3.26 does not know that nvcc 12 and later speak it, and falls back to 17 in silence.
  add_library(smla_cuda_flags INTERFACE)
  set(host_warnings -Wall,-Wextra,-Wno-unused-parameter,-Wno-missing-field-initializers,-march=x86-64-v3,-ffp-contract=off)
  target_compile_options(smla_cuda_flags INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20 -Xcompiler=${host_warnings}>
    $<$<AND:$<BOOL:${SMLA_WERROR}>,$<COMPILE_LANGUAGE:CUDA>>:-Werror=all-warnings>)
  target_include_directories(smla_cuda_flags INTERFACE ${PROJECT_SOURCE_DIR})
endif()
