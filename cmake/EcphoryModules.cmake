# One function per kind of target, so that every folder is built alike.

add_library(ecphory_options INTERFACE)
# Contraction would fuse a*b+c on targets with FMA only: results of the plain
# C++ code must not depend on the compiler's choice.
target_compile_options(ecphory_options INTERFACE
  $<$<COMPILE_LANGUAGE:C,CXX>:-ffp-contract=off>)
if(ECPHORY_DEVELOPER_MODE)
  target_compile_options(ecphory_options INTERFACE
    $<$<COMPILE_LANGUAGE:C,CXX>:-Wall;-Wextra;-Wshadow;-Werror>)
  # GCC 12 reports std::string concatenation as overlapping copies (GCC bug
  # 105651).
  target_compile_options(ecphory_options INTERFACE
    $<$<AND:$<CXX_COMPILER_ID:GNU>,$<COMPILE_LANGUAGE:CXX>>:-Wno-restrict>)
endif()
if(ECPHORY_SANITIZE)
  # The kernels take three times as long to compile with -O2 -g, and say no more.
  # g++ 12 then takes what <regex> moves for uninitialized.
  target_compile_options(ecphory_options INTERFACE
    $<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=${ECPHORY_SANITIZE};-fno-omit-frame-pointer;-fno-sanitize-recover=all;-O1;-g1>
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-maybe-uninitialized>)
  target_link_options(ecphory_options INTERFACE -fsanitize=${ECPHORY_SANITIZE})
endif()
if(ECPHORY_LIBFUZZER)
  target_compile_options(ecphory_options INTERFACE
    $<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=fuzzer-no-link>)
endif()
if(ECPHORY_CUDA)
  # constexpr helpers of the shared headers run on the device as well. Result
  # ignores a Status once; nvcc 13 warns of it without being asked.
  target_compile_options(ecphory_options INTERFACE
    $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;-diag-suppress=2810>)
endif()

set(ECPHORY_MODULES "" CACHE INTERNAL "modules, in dependency order")

# ecphory_module(NAME [DIR dir] [DEPS ...]): static library ecphory_NAME
# from every *.cc and *.cu of the folder (not *_test.cc, *_bench.cc), and in developer mode a
# test program NAME_test from its *_test.cc.
function(ecphory_module name)
  cmake_parse_arguments(arg "" "DIR" "DEPS" ${ARGN})
  if(NOT arg_DIR)
    set(arg_DIR src/${name})
  endif()
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${arg_DIR}/*.cc ${PROJECT_SOURCE_DIR}/${arg_DIR}/*.cu)
  if(NOT ECPHORY_CUDA)
    list(FILTER sources EXCLUDE REGEX "\\.cu$")
  endif()
  set(tests ${sources})
  list(FILTER sources EXCLUDE REGEX "_(test|bench)\\.cc$")
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  add_library(ecphory_${name} STATIC ${sources})
  set_target_properties(ecphory_${name} PROPERTIES LINKER_LANGUAGE CXX)
  target_include_directories(ecphory_${name} PUBLIC ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
  target_compile_features(ecphory_${name} PUBLIC cxx_std_20)
  target_link_libraries(ecphory_${name} PUBLIC ${arg_DEPS} PRIVATE ecphory_options)
  set(ECPHORY_MODULES ${ECPHORY_MODULES} ${name} CACHE INTERNAL "")
  if(ECPHORY_DEVELOPER_MODE AND tests)
    ecphory_test(${name}_test SOURCES ${tests} DEPS ecphory_${name})
  endif()
endfunction()

# ecphory_test(NAME SOURCES ... DEPS ... [LABELS ...]): a GoogleTest program.
# ECPHORY_TEST_DATA is the repository's tests/ folder.
function(ecphory_test name)
  cmake_parse_arguments(arg "" "TIMEOUT" "SOURCES;DEPS;LABELS" ${ARGN})
  if(NOT arg_TIMEOUT)
    # A hang, not a slow or busy machine, is what ends a test.
    set(arg_TIMEOUT 900)
  endif()
  if(ECPHORY_SANITIZE)
    set(arg_TIMEOUT 3600)
  endif()
  if(NOT arg_LABELS)
    set(arg_LABELS unit)
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_DEPS} GTest::gtest_main GTest::gtest ecphory_options)
  target_compile_definitions(${name} PRIVATE ECPHORY_TEST_DATA="${PROJECT_SOURCE_DIR}/tests")
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}" SKIP_RETURN_CODE 77)
  if(ECPHORY_SANITIZE)
    # Too much memory is what some tests ask for.
    set_tests_properties(${name} PROPERTIES ENVIRONMENT
      "ASAN_OPTIONS=allocator_may_return_null=1;TSAN_OPTIONS=allocator_may_return_null=1")
  endif()
endfunction()

# The product, twice from every module's objects: ecphory_shared is what gets
# installed, ecphory_whole (static) is what the tool links. Both show include/
# only, and the shared one exports what is marked ECPHORY_EXPORT.
function(ecphory_library)
  set(objects)
  foreach(module ${ECPHORY_MODULES})
    list(APPEND objects $<TARGET_OBJECTS:ecphory_${module}>)
  endforeach()
  set(deps Threads::Threads PkgConfig::URING PkgConfig::PCRE2 PkgConfig::UTF8PROC PkgConfig::HWY)
  if(ECPHORY_CUDA)
    list(APPEND deps CUDA::cudart_static)
  endif()

  add_library(ecphory_whole STATIC ${objects})
  target_include_directories(ecphory_whole PUBLIC ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(ecphory_whole PUBLIC ${deps} PRIVATE ecphory_options)

  add_library(ecphory_shared SHARED ${objects})
  set(version_script ${PROJECT_SOURCE_DIR}/cmake/libecphory.map)
  target_include_directories(ecphory_shared PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(ecphory_shared PUBLIC cxx_std_20)
  target_link_libraries(ecphory_shared PRIVATE ${deps} ecphory_options)
  # The process keeps a signal handler (io/bus_guard.h) when a program lets the
  # library go.
  target_link_options(ecphory_shared PRIVATE
    LINKER:--version-script=${version_script} LINKER:-z,nodelete)
  set_target_properties(ecphory_shared PROPERTIES
    OUTPUT_NAME ecphory EXPORT_NAME ecphory LINK_DEPENDS ${version_script}
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})

  set_target_properties(ecphory_whole ecphory_shared PROPERTIES LINKER_LANGUAGE CXX)
endfunction()

# The memory alone behind its C API (include/ecphory/engram.h): what it needs of
# the modules, and no symbol but ecphory_engram_*.
function(ecphory_engram_library)
  set(objects)
  foreach(module base io tensor format text engram capi)
    list(APPEND objects $<TARGET_OBJECTS:ecphory_${module}>)
  endforeach()
  set(version_script ${PROJECT_SOURCE_DIR}/cmake/libecphory-engram.map)
  file(STRINGS ${PROJECT_SOURCE_DIR}/include/ecphory/engram.h abi
    REGEX "define ECPHORY_ENGRAM_ABI_VERSION [0-9]+")
  string(REGEX REPLACE ".* " "" abi "${abi}")
  add_library(ecphory_engram_shared SHARED ${objects})
  target_include_directories(ecphory_engram_shared PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(ecphory_engram_shared PRIVATE
    Threads::Threads PkgConfig::URING PkgConfig::PCRE2 PkgConfig::UTF8PROC
    PkgConfig::HWY ecphory_options)
  target_link_options(ecphory_engram_shared PRIVATE
    LINKER:--version-script=${version_script} LINKER:-z,nodelete)
  set_target_properties(ecphory_engram_shared PROPERTIES
    OUTPUT_NAME ecphory-engram EXPORT_NAME engram LINKER_LANGUAGE CXX
    LINK_DEPENDS ${version_script}
    VERSION ${abi}.${PROJECT_VERSION} SOVERSION ${abi})
endfunction()
