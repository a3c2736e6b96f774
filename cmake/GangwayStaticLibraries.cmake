# gangway_static_absl, gangway_static_protobuf and gangway_static_re2 (which gRPC needs): position-independent static
# libraries, for what is loaded into other programs' processes (gangway_plugin). Debian's static libraries are not
# position-independent, and its shared ones would meet other versions there. The sources are those of the Debian
# packages whose headers the build uses, with Debian's patches, so that the objects fit the code that includes these.
#
# Without debug information, without the files that no plugin uses, and optimized in full for release only: ccache
# holds the result, and a build without it should not take longer than needed. So several sources are compiled as one,
# which takes a third of the time, since most of it is spent in headers. A source that cannot share a translation unit
# (a macro or a name that another one has, too) is compiled alone.
include_guard()

# gangway_static_library(<name> <folder below the wheels> SOURCES a.cc ... [ALONE regex])
function(gangway_static_library name folder)
  cmake_parse_arguments(arg "" "ALONE" "SOURCES" ${ARGN})
  set(root ${GANGWAY_WHEELS}/${folder})
  set(alone)
  if(arg_ALONE)
    set(alone ${arg_SOURCES})
    list(FILTER alone INCLUDE REGEX "${arg_ALONE}")
    list(FILTER arg_SOURCES EXCLUDE REGEX "${arg_ALONE}")
  endif()
  set(joined)
  while(arg_SOURCES)
    list(SUBLIST arg_SOURCES 0 14 batch)
    list(REMOVE_ITEM arg_SOURCES ${batch})
    set(text)
    foreach(source ${batch})
      cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${root})  # ccache's result is the same in each clone
      string(APPEND text "#include \"${source}\"\n")
    endforeach()
    list(LENGTH joined count)
    set(file ${CMAKE_BINARY_DIR}/third_party/${name}_${count}.cc)
    file(CONFIGURE OUTPUT ${file} CONTENT "${text}" @ONLY)
    list(APPEND joined ${file})
  endwhile()
  add_library(${name} STATIC EXCLUDE_FROM_ALL ${joined} ${alone})
  target_include_directories(${name} PRIVATE ${root})
  target_compile_options(${name} PRIVATE $<IF:$<CONFIG:Release>,-O2,-O1> -g0 -w -ffunction-sections -fdata-sections
                                         -fvisibility=hidden)
  target_link_libraries(${name} PUBLIC Threads::Threads)
endfunction()

# The lists of files below change only with this one.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tools/versions/debian_sources.txt)
file(GLOB_RECURSE absl_sources ${GANGWAY_WHEELS}/abseil/absl/*.cc)
list(FILTER absl_sources EXCLUDE REGEX
     "_test\\.cc|test_|_testing|benchmark|_mock|mocking|gentables|exception_safety|scoped_set_env|/flags/|/log/")
file(GLOB protobuf_sources
     ${GANGWAY_WHEELS}/protobuf/src/google/protobuf/*.cc ${GANGWAY_WHEELS}/protobuf/src/google/protobuf/io/*.cc
     ${GANGWAY_WHEELS}/protobuf/src/google/protobuf/stubs/*.cc)
list(FILTER protobuf_sources EXCLUDE REGEX
     "test|mock|gzip|unittest|/io/(printer|io_win32)|arenaz_sampler|inlined_string_field|tctable_(full|lite)")
# The messages that come with protobuf, of which only descriptions of messages are used.
list(FILTER protobuf_sources EXCLUDE REGEX
     "/(any|api|duration|empty|field_mask|source_context|struct|timestamp|type|wrappers)\\.pb\\.cc")
file(GLOB re2_sources ${GANGWAY_WHEELS}/re2/re2/*.cc ${GANGWAY_WHEELS}/re2/util/rune.cc
     ${GANGWAY_WHEELS}/re2/util/strutil.cc)
if(NOT absl_sources OR NOT protobuf_sources OR NOT re2_sources)
  message(FATAL_ERROR "the sources of abseil, protobuf and re2 are not in ${GANGWAY_WHEELS}: run tools/setup.sh first")
endif()
gangway_static_library(gangway_static_absl abseil SOURCES ${absl_sources})
gangway_static_library(gangway_static_protobuf protobuf/src SOURCES ${protobuf_sources}
                       ALONE "/(dynamic_message|extension_set_heavy)\\.cc")
target_compile_definitions(gangway_static_protobuf PRIVATE HAVE_PTHREAD)
gangway_static_library(gangway_static_re2 re2 SOURCES ${re2_sources} ALONE ".")
