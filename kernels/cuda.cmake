# SPDX-License-Identifier: Apache-2.0
# The CUDA kernels: one static library for those that run everywhere, one for those of a single architecture. Instances are one small file each.
set(SMLA_CUDA_ROOMS common naive sparse_mma dense_paged virtual_block_table)
set(sources)
foreach(room ${SMLA_CUDA_ROOMS})
  file(GLOB found CONFIGURE_DEPENDS ${room}/*.cc ${room}/*.cu ${room}/instances/*.cu)
  list(FILTER found EXCLUDE REGEX "_test\\.cc$")
  list(APPEND sources ${found})
endforeach()
smla_cuda_gencode(gencode ${SMLA_CUDA_ARCHS})
add_library(smla_cuda STATIC ${sources})
target_compile_options(smla_cuda PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:${gencode} -Xptxas=-v>)
set_property(TARGET smla_cuda PROPERTY RULE_LAUNCH_COMPILE "${PROJECT_SOURCE_DIR}/scripts/keep_ptxas.sh <OBJECT>")
target_include_directories(smla_cuda SYSTEM PUBLIC ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES})
# The standard is smla_cuda_flags's; REQUIRED would have an old CMake refuse a dialect that it does not know.
set_target_properties(smla_cuda PROPERTIES CUDA_STANDARD_REQUIRED OFF POSITION_INDEPENDENT_CODE ON)
target_link_libraries(smla_cuda PUBLIC smla_flags smla_cuda_flags smla::cases PRIVATE smla_warnings)
target_link_libraries(smla_kernels PUBLIC smla_cuda)
target_compile_definitions(smla_kernels PUBLIC SMLA_HAVE_CUDA)

# The kernels without the harness, for a machine with a GPU and nothing else.
add_executable(smla_cuda_bringup bringup/bringup_main.cc bringup/check.cu bringup/time.cu)
target_compile_options(smla_cuda_bringup PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:${gencode}>)
set_target_properties(smla_cuda_bringup PROPERTIES CUDA_STANDARD_REQUIRED OFF RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR} BUILD_RPATH "$ORIGIN")
target_link_libraries(smla_cuda_bringup PRIVATE smla::kernels smla_cuda_flags smla_warnings)

if(SMLA_TESTS)
  smla_test(${CMAKE_CURRENT_SOURCE_DIR}/sparse_mma/plan_test.cc LIBS smla::kernels)
  add_test(NAME kernels.resources COMMAND ${PROJECT_SOURCE_DIR}/scripts/resources.sh ${PROJECT_BINARY_DIR})
  set_tests_properties(kernels.resources PROPERTIES LABELS host SKIP_RETURN_CODE 77)
endif()
