# One helper for libraries and one for tests, so that targets look alike. Our warnings and
# sanitizers go on our targets only, never on what we depend on.

function(_spiritlevel_flags target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wshadow -Wconversion
                                           -Wno-sign-conversion)
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR})
  if(SPIRITLEVEL_SANITIZE)
    target_compile_options(${target} PUBLIC -fsanitize=${SPIRITLEVEL_SANITIZE}
                                            -fno-sanitize-recover=all -fno-omit-frame-pointer)
    target_link_options(${target} PUBLIC -fsanitize=${SPIRITLEVEL_SANITIZE})
    # What the sanitizers add to the code keeps loops from being vectorised, of which clang warns,
    # and makes g++ see uninitialised values where there are none.
    target_compile_options(${target}
                           PRIVATE $<$<CXX_COMPILER_ID:Clang>:-Wno-pass-failed>
                                   $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  endif()
  if(SPIRITLEVEL_STL_ASSERTIONS)
    target_compile_definitions(${target} PUBLIC _GLIBCXX_ASSERTIONS)
  endif()
endfunction()

# spiritlevel_library(NAME SRCS ... [DEPS public ...] [PRIVATE_DEPS ...])
# makes spiritlevel_NAME and the alias spiritlevel::NAME.
function(spiritlevel_library name)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(spiritlevel_${name} STATIC ${ARG_SRCS})
  add_library(spiritlevel::${name} ALIAS spiritlevel_${name})
  target_link_libraries(spiritlevel_${name} PUBLIC ${ARG_DEPS} PRIVATE ${ARG_PRIVATE_DEPS})
  _spiritlevel_flags(spiritlevel_${name})
endfunction()

# spiritlevel_test(NAME SRCS ... DEPS ... [LABELS ...]) makes NAME_test, its cases found by CTest.
function(spiritlevel_test name)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS;LABELS" ${ARGN})
  add_executable(${name}_test ${ARG_SRCS})
  target_link_libraries(${name}_test PRIVATE ${ARG_DEPS} GTest::gmock GTest::gtest_main)
  _spiritlevel_flags(${name}_test)
  # A test waits for the code it tests, which has its own flags; its own loops are short. With
  # sanitizers a compiler that optimises takes more than twice as long.
  target_compile_options(${name}_test PRIVATE $<$<CONFIG:Release>:-O1>)
  if(SPIRITLEVEL_SANITIZE)
    target_compile_options(${name}_test PRIVATE -O0)
  endif()
  add_dependencies(spiritlevel_tests ${name}_test)
  set(properties TIMEOUT 300)
  if(ARG_LABELS)
    list(APPEND properties LABELS ${ARG_LABELS})
  endif()
  # PRE_TEST: a binary that cannot run where it is built (CUDA) can still be built there.
  gtest_discover_tests(${name}_test DISCOVERY_MODE PRE_TEST TEST_PREFIX "${name}."
                       WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} PROPERTIES ${properties})
endfunction()
