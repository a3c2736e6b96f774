# gangway_library(<name> SRCS a.cc ... DEPS gangway_base absl::status ...)      a static library
# gangway_proto(<name> PROTOS a.proto ... [DEPS ...] [GRPC])                    a library of generated messages
# gangway_test(<name> SRCS a_test.cc DEPS ... [TIMEOUT seconds] [SHARDS n] [LABELS ...])
#                                                       a GoogleTest binary run by ctest, in n parts
# gangway_fuzz(<name> SRCS a_fuzz.cc DEPS ...)          a fuzz target (base/fuzz.h): libFuzzer drives it in the preset
#                                                       fuzz; in all others it is a test over seeds and mutations
# gangway_plugin(<name> EXPORTS a.map LIBRARY <library> [GRPC] [RUNTIME_OF_PROCESS])
#                                                       a shared library that exports what the map says
# gangway_test_plugin(<name>)                           gives a library of tests the real PJRT plugin (real_plugin.h)
# Includes are "gangway/<folder>/<file>.h", also for generated headers.
#
# A test's labels are its folders (gangway/worker/core: worker, core), so `ctest -L '^scheduler$'` runs one folder's
# tests. Two more labels say in which build `make test` runs a test: "tsan" also under ThreadSanitizer (implied by the
# folders below), "dev" in the dev build; every test without the label "dev" runs in the ASan build. The target
# gangway_tests builds all tests, gangway_tests_asan, gangway_tests_dev and gangway_tests_tsan those of one build. No
# test is built by default.
include_guard()

# Not `program` and the cores, which have no threads (tools/tidy.toml), nor the simulation: all of it runs on one thread
# of the system.
set(GANGWAY_TSAN_FOLDERS base service)
foreach(kind "" _asan _dev _tsan)
  add_custom_target(gangway_tests${kind})
endforeach()
add_custom_target(gangway_fuzzers)

add_library(gangway_options INTERFACE)
target_include_directories(gangway_options INTERFACE ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR})
# -pthread for all, because packages ask for it: it defines a macro, and a precompiled header fits one set of macros.
target_compile_options(gangway_options INTERFACE -pthread -Wall -Wextra -Werror -Wno-unused-parameter
                                                 -Wno-missing-field-initializers
  # GCC 12 at -O3 reports false positives in absl's hash tables and libstdc++'s strings.
  "$<$<AND:$<CXX_COMPILER_ID:GNU>,$<CONFIG:Release>>:-Wno-maybe-uninitialized;-Wno-restrict>")
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  # libstdc++ 12 uses its own deprecated functions (std::stable_partition), and clang reports them at our line.
  target_compile_options(gangway_options INTERFACE -Wthread-safety -Werror=thread-safety -Wno-deprecated-declarations)
  # A precompiled header out of ccache is older than the headers of a fresh clone, and as good.
  target_compile_options(gangway_options INTERFACE "SHELL:-Xclang -fno-pch-timestamp")
endif()

# Precompiled headers take half of the compile time of a test, and a third of that of other sources. Tests have them
# in every build (not where they are optimized for a sanitizer), the product's own sources in all but the release build.
# That one and tools/clang_tidy compile without, and so prove that every file includes what it uses.
option(GANGWAY_PRECOMPILE "Precompile headers for the product's sources" OFF)
function(gangway_precompiled_header name kind)
  if(kind STREQUAL product)
    add_library(${name} OBJECT EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/cmake/precompiled/stub.cc)
    target_link_libraries(${name} PRIVATE gangway_options protobuf::libprotobuf absl::flat_hash_map absl::statusor)
  else()
    # An executable, because code of executables and of libraries is compiled with different options (-fPIE, -fPIC).
    add_executable(${name} EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/cmake/precompiled/stub.cc)
    target_link_libraries(${name} PRIVATE gangway_options protobuf::libprotobuf absl::flat_hash_map absl::statusor
                                          GTest::gtest GTest::gmock)
  endif()
  if(GANGWAY_SANITIZER AND kind STREQUAL test)
    target_compile_options(${name} PRIVATE -O0)
  endif()
  target_precompile_headers(${name} PRIVATE <cmake/precompiled/${kind}.h>)  # without the path of this clone
  add_dependencies(${name} gangway_wire_proto)
endfunction()
gangway_precompiled_header(gangway_precompiled_test test)
if(GANGWAY_PRECOMPILE)
  gangway_precompiled_header(gangway_precompiled_product product)
endif()

function(gangway_library name)
  cmake_parse_arguments(arg "" "" "SRCS;DEPS" ${ARGN})
  if(arg_SRCS)
    add_library(${name} STATIC ${arg_SRCS})
    target_link_libraries(${name} PUBLIC gangway_options ${arg_DEPS} Threads::Threads)
    if(GANGWAY_PRECOMPILE)
      target_precompile_headers(${name} REUSE_FROM gangway_precompiled_product)
    endif()
  else()
    add_library(${name} INTERFACE)
    target_link_libraries(${name} INTERFACE gangway_options ${arg_DEPS} Threads::Threads)
  endif()
endfunction()

function(gangway_proto name)
  cmake_parse_arguments(arg "GRPC" "" "PROTOS;DEPS" ${ARGN})
  set(generated)
  foreach(proto ${arg_PROTOS})
    cmake_path(ABSOLUTE_PATH proto BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
    cmake_path(RELATIVE_PATH proto BASE_DIRECTORY ${CMAKE_SOURCE_DIR} OUTPUT_VARIABLE relative)
    string(REGEX REPLACE "\\.proto$" "" stem ${relative})
    set(outputs ${CMAKE_BINARY_DIR}/${stem}.pb.cc ${CMAKE_BINARY_DIR}/${stem}.pb.h)
    set(flags --cpp_out=${CMAKE_BINARY_DIR})
    if(arg_GRPC)
      list(APPEND outputs ${CMAKE_BINARY_DIR}/${stem}.grpc.pb.cc ${CMAKE_BINARY_DIR}/${stem}.grpc.pb.h)
      list(APPEND flags --grpc_out=${CMAKE_BINARY_DIR} --plugin=protoc-gen-grpc=${GANGWAY_GRPC_PLUGIN})
    endif()
    add_custom_command(
      OUTPUT ${outputs}
      COMMAND ${GANGWAY_PROTOC} -I${CMAKE_SOURCE_DIR} ${flags} ${proto}
      DEPENDS ${proto} VERBATIM)
    list(APPEND generated ${outputs})
  endforeach()
  add_library(${name} STATIC ${generated})
  target_include_directories(${name} PUBLIC ${CMAKE_BINARY_DIR})
  if(GANGWAY_SANITIZER)
    target_compile_options(${name} PRIVATE -O0 -fno-sanitize=undefined -g0)  # generated, and slow to compile
  endif()
  target_link_libraries(${name} PUBLIC protobuf::libprotobuf ${arg_DEPS})
  if(arg_GRPC)
    target_link_libraries(${name} PUBLIC gRPC::grpc++)
  endif()
endfunction()

# In the sanitizer builds, the sources of tests are not optimized, which halves their compile time, unless they compute
# so much that it would show (COMPUTES).
function(gangway_test name)
  cmake_parse_arguments(arg "COMPUTES" "TIMEOUT;SHARDS" "SRCS;DEPS;LABELS" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 60)
  endif()
  add_executable(${name} EXCLUDE_FROM_ALL ${arg_SRCS})
  target_link_libraries(${name} PRIVATE gangway_options ${arg_DEPS} GTest::gtest GTest::gmock GTest::gtest_main
                                        Threads::Threads)
  # GCC 12 at -O3 reports another false positive in std::string, for texts that tests join.
  target_compile_options(
    ${name} PRIVATE "$<$<AND:$<CXX_COMPILER_ID:GNU>,$<CONFIG:Release>>:-Wno-stringop-overflow;-Wno-array-bounds>")
  if(GANGWAY_SANITIZER AND NOT arg_COMPUTES)
    target_compile_options(${name} PRIVATE -O0)
  endif()
  if(NOT (GANGWAY_SANITIZER AND arg_COMPUTES))
    target_precompile_headers(${name} REUSE_FROM gangway_precompiled_test)
  endif()
  gangway_register_test(${name} ${arg_TIMEOUT} "${arg_LABELS}" ${arg_SHARDS})
endfunction()

function(gangway_fuzz name)
  cmake_parse_arguments(arg "" "" "SRCS;DEPS" ${ARGN})
  add_executable(${name} EXCLUDE_FROM_ALL ${arg_SRCS})
  if(GANGWAY_FUZZ)
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    add_dependencies(gangway_fuzzers ${name})
  else()
    gangway_register_test(${name} 60 "fuzz")
  endif()
  target_link_libraries(${name} PRIVATE gangway_options gangway_fuzz_main ${arg_DEPS} Threads::Threads)
endfunction()

# Labels, time limit and sanitizer options of a test's executable. A fourth argument: the number of its shards.
function(gangway_register_test name timeout extra_labels)
  cmake_path(RELATIVE_PATH CMAKE_CURRENT_SOURCE_DIR BASE_DIRECTORY ${CMAKE_SOURCE_DIR}/gangway OUTPUT_VARIABLE folder)
  string(REPLACE "/" ";" labels "${folder}")
  foreach(label ${labels})
    if(label IN_LIST GANGWAY_TSAN_FOLDERS)
      list(APPEND labels tsan)
    endif()
  endforeach()
  list(APPEND labels ${extra_labels})
  list(REMOVE_DUPLICATES labels)
  gangway_add_to_tests(${name} "${labels}")
  set(suppressions ${CMAKE_SOURCE_DIR}/tools/sanitizers)
  set(environment)
  if(GANGWAY_SANITIZER)
    math(EXPR timeout "${timeout} * 4")  # instrumented code is slower
    # Too large an allocation gives null, as malloc does, and not the end of the process.
    set(null "allocator_may_return_null=1")
    set(environment
        "ASAN_OPTIONS=detect_stack_use_after_return=1:${null}" "UBSAN_OPTIONS=print_stacktrace=1"
        "LSAN_OPTIONS=suppressions=${suppressions}/lsan.supp:print_suppressions=0"
        "TSAN_OPTIONS=suppressions=${suppressions}/tsan.supp:halt_on_error=1:second_deadlock_stack=1:${null}")
  endif()
  set(shards ${ARGN})
  if(NOT shards)
    set(shards 1)
  endif()
  math(EXPR last "${shards} - 1")
  foreach(shard RANGE ${last})
    set(test ${name})
    set(part ${environment})
    if(shards GREATER 1)
      string(APPEND test _${shard})
      list(APPEND part GTEST_TOTAL_SHARDS=${shards} GTEST_SHARD_INDEX=${shard})
    endif()
    add_test(NAME ${test} COMMAND ${name})
    set_tests_properties(${test} PROPERTIES TIMEOUT ${timeout} LABELS "${labels}" ENVIRONMENT "${part}")
  endforeach()
endfunction()

# Makes the targets of the builds that run a test with these labels build it.
function(gangway_add_to_tests name labels)
  set(kinds "")
  if("tsan" IN_LIST labels)
    list(APPEND kinds _tsan)
  endif()
  if("dev" IN_LIST labels)
    list(APPEND kinds _dev)
  else()
    list(APPEND kinds _asan)
  endif()
  add_dependencies(gangway_tests ${name})
  foreach(kind ${kinds})
    add_dependencies(gangway_tests${kind} ${name})
  endforeach()
endfunction()

# Gives a library of tests the path of the real PJRT plugin, relative to its own folder (device/pjrt/testdata).
function(gangway_test_plugin name)
  cmake_path(RELATIVE_PATH GANGWAY_PJRT_PLUGIN BASE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR} OUTPUT_VARIABLE real)
  target_compile_definitions(${name} PRIVATE GANGWAY_TEST_REAL_PLUGIN="${real}")
endfunction()

# A plugin is loaded into the processes of other programs, beside other versions of the libraries that it uses: it holds
# its library, all Gangway libraries under that, abseil, protobuf, OpenSSL's libcrypto and the C++ runtime, with GRPC
# also gRPC and what that needs, and exports nothing of them. It needs the C library alone. RUNTIME_OF_PROCESS: it holds
# no C++ runtime, since it passes that one's types to the code that calls it, which has one.
function(gangway_plugin name)
  cmake_parse_arguments(arg "GRPC;RUNTIME_OF_PROCESS" "EXPORTS;LIBRARY" "" ${ARGN})
  set(runtime -static-libstdc++ -static-libgcc)
  if(arg_RUNTIME_OF_PROCESS)
    set(runtime)
  endif()
  set(system crypto)
  set(third_party gangway_static_absl gangway_static_protobuf)
  if(arg_GRPC)
    # Debian's static libraries of these are position-independent; of re2's, only the tables, which its source lacks.
    list(APPEND system grpc++ grpc gpr upb address_sorting cares ssl z re2)
    list(APPEND third_party gangway_static_re2)
  endif()
  list(TRANSFORM system REPLACE "(.+)" "/usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/lib\\1.a")
  gangway_libraries_under(archives ${arg_LIBRARY})
  add_library(${name} SHARED ${CMAKE_SOURCE_DIR}/cmake/plugin.cc)
  list(APPEND archives ${third_party})
  add_dependencies(${name} ${arg_LIBRARY} ${archives})
  list(TRANSFORM archives REPLACE "(.+)" "$<TARGET_FILE:\\1>")
  cmake_path(ABSOLUTE_PATH arg_EXPORTS BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
  target_link_options(${name} PRIVATE -Wl,--version-script=${arg_EXPORTS} -Wl,-z,defs -Wl,--as-needed -Wl,--gc-sections
                                      ${runtime})
  target_link_libraries(${name} PRIVATE
    -Wl,--whole-archive $<TARGET_FILE:${arg_LIBRARY}> -Wl,--no-whole-archive
    -Wl,--start-group ${archives} ${system} -Wl,--end-group Threads::Threads)
  set_target_properties(${name} PROPERTIES LINK_DEPENDS ${arg_EXPORTS})
endfunction()

# Sets `result` to the static libraries of this build that `library` needs, without itself.
function(gangway_libraries_under result library)
  set(found)
  set(left ${library})
  while(left)
    list(POP_FRONT left next)
    get_target_property(needs ${next} INTERFACE_LINK_LIBRARIES)
    foreach(need ${needs})
      if(TARGET ${need} AND need MATCHES "^gangway_" AND NOT need IN_LIST found)
        list(APPEND found ${need})
        list(APPEND left ${need})
      endif()
    endforeach()
  endwhile()
  set(archives)
  foreach(each ${found})
    get_target_property(type ${each} TYPE)
    if(type STREQUAL STATIC_LIBRARY)
      list(APPEND archives ${each})
    endif()
  endforeach()
  set(${result} ${archives} PARENT_SCOPE)
endfunction()
