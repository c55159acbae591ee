# SPDX-License-Identifier: Apache-2.0
# One function an idea: a room, a test. A room's CMakeLists.txt is a few calls of these.

# -Wno-restrict: GCC 12 warns falsely about std::string assignments that it inlined (GCC bug 105329).
add_library(smla_warnings INTERFACE)
target_compile_options(smla_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wshadow -Wno-unused-parameter -Wno-missing-field-initializers>
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-restrict>
  $<$<AND:$<BOOL:${SMLA_WERROR}>,$<COMPILE_LANGUAGE:CXX>>:-Werror>)

# -ffp-contract=off: inputs must have the same bits on every machine, and the rounding that a kernel declares must be the rounding it does.
add_library(smla_flags INTERFACE)
target_compile_options(smla_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-march=x86-64-v3 -ffp-contract=off>)
target_include_directories(smla_flags INTERFACE ${PROJECT_SOURCE_DIR})

# smla_timeout(TEST SECONDS): how long it may take on a busy machine; in a sanitized build so many times longer.
function(smla_timeout test seconds)
  math(EXPR seconds "${seconds} * ${SMLA_TIMEOUT_FACTOR}")
  set_tests_properties(${test} PROPERTIES TIMEOUT ${seconds})
endfunction()

# smla_room(NAME [SUBFOLDERS folder...] [LIBS target...]): every *.cc of the folder and of the subfolders named (tests and mains apart) as library smla::NAME,
# every *_test.cc as a test of its own.
function(smla_room name)
  cmake_parse_arguments(ARG "" "" "SUBFOLDERS;LIBS;EXTRA_SOURCES" ${ARGN})
  list(TRANSFORM ARG_SUBFOLDERS PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/ OUTPUT_VARIABLE folders)
  list(PREPEND folders ${CMAKE_CURRENT_SOURCE_DIR})
  list(TRANSFORM folders APPEND /*.cc OUTPUT_VARIABLE globs)
  file(GLOB sources CONFIGURE_DEPENDS ${globs})
  list(FILTER sources EXCLUDE REGEX "(_test|_bench|_main|_fuzz)\\.cc$")
  add_library(smla_${name} STATIC ${sources} ${ARG_EXTRA_SOURCES})
  add_library(smla::${name} ALIAS smla_${name})
  set_target_properties(smla_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_link_libraries(smla_${name} PUBLIC smla_flags ${ARG_LIBS} PRIVATE smla_warnings)
  if(SMLA_TESTS)
    list(TRANSFORM folders APPEND /*_test.cc OUTPUT_VARIABLE globs)
    file(GLOB tests CONFIGURE_DEPENDS ${globs})
    foreach(test ${tests})
      smla_test(${test} LIBS smla::${name})
    endforeach()
    smla_header_check(${name} ${folders})
  endif()
  if(SMLA_TESTS OR SMLA_FUZZ)
    list(TRANSFORM folders APPEND /*_fuzz.cc OUTPUT_VARIABLE globs)
    file(GLOB targets CONFIGURE_DEPENDS ${globs})
    foreach(target ${targets})
      smla_fuzz(${target} LIBS smla::${name})
    endforeach()
  endif()
endfunction()

# smla_fuzz(FILE LIBS ...): room/x_fuzz.cc with libFuzzer (SMLA_FUZZ, clang), or as the test "room.x_fuzz" that replays scripts/fuzz/room.x_fuzz/.
function(smla_fuzz file)
  cmake_parse_arguments(ARG "" "" "LIBS" ${ARGN})
  file(RELATIVE_PATH relative ${PROJECT_SOURCE_DIR} ${file})
  string(REGEX REPLACE "\\.cc$" "" name ${relative})
  string(REPLACE "/" "." name ${name})
  add_executable(${name} ${file})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/scripts/cmake/include)
  target_link_libraries(${name} PRIVATE ${ARG_LIBS} smla_warnings)
  if(SMLA_FUZZ)
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/fuzz)
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  else()
    target_sources(${name} PRIVATE ${PROJECT_SOURCE_DIR}/scripts/cmake/fuzz_replay.cc)
    add_test(NAME ${name} COMMAND ${name} ${PROJECT_SOURCE_DIR}/scripts/fuzz/${name})
    set_tests_properties(${name} PROPERTIES LABELS host)
    smla_timeout(${name} 120)
  endif()
endfunction()

# smla_test(FILE LIBS ... [LABELS host]): FILE room/sub/x_test.cc is ctest "room.sub.x".
function(smla_test file)
  cmake_parse_arguments(ARG "" "" "LIBS;LABELS" ${ARGN})
  file(RELATIVE_PATH relative ${PROJECT_SOURCE_DIR} ${file})
  string(REGEX REPLACE "_test\\.cc$" "" test ${relative})
  string(REPLACE "/" "." test ${test})
  add_executable(${test} ${file})
  target_link_libraries(${test} PRIVATE ${ARG_LIBS} smla_catch_main smla_warnings)
  target_compile_options(${test} PRIVATE -O1)   # the assertions' own code; what they test is the library, built as the product is
  add_test(NAME ${test} COMMAND ${test})
  if(NOT ARG_LABELS)
    set(ARG_LABELS host)
  endif()
  set_tests_properties(${test} PROPERTIES LABELS "${ARG_LABELS}")
  smla_timeout(${test} 600)
endfunction()

# Every header of a room compiles alone: one generated source each.
function(smla_header_check room)
  list(TRANSFORM ARGN APPEND /*.h OUTPUT_VARIABLE globs)
  file(GLOB headers CONFIGURE_DEPENDS ${globs})
  set(generated)
  foreach(header ${headers})
    file(RELATIVE_PATH relative ${PROJECT_SOURCE_DIR} ${header})
    string(MAKE_C_IDENTIFIER ${relative} id)
    set(source ${CMAKE_CURRENT_BINARY_DIR}/header_check/${id}.cc)
    file(CONFIGURE OUTPUT ${source} CONTENT "#include \"${relative}\"\n")
    list(APPEND generated ${source})
  endforeach()
  if(generated)
    add_library(smla_${room}_headers OBJECT ${generated})
    target_link_libraries(smla_${room}_headers PRIVATE smla::${room} smla_warnings)
    target_compile_options(smla_${room}_headers PRIVATE -O0)
  endif()
endfunction()
