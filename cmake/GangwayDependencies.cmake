# Finds every third-party package of the build. tools/setup.sh installs them.
find_package(Threads REQUIRED)
find_package(absl REQUIRED)
find_package(Boost REQUIRED COMPONENTS context)
find_package(Protobuf REQUIRED)
find_package(gRPC CONFIG REQUIRED)
find_package(spdlog REQUIRED)
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(GTest REQUIRED)
find_package(benchmark REQUIRED)
find_package(prometheus-cpp CONFIG REQUIRED)

# Executables hold abseil, protobuf and gRPC: for their 52 shared libraries, the dynamic linker took half of the CPU
# time in which a process starts. (TSan's suppressions name gRPC's shared ones.)
if(NOT GANGWAY_SANITIZER)
  get_directory_property(imported IMPORTED_TARGETS)
  foreach(target ${imported})
    foreach(property IMPORTED_LOCATION IMPORTED_LOCATION_NONE IMPORTED_LOCATION_RELEASE)
      get_target_property(shared ${target} ${property})
      string(REGEX REPLACE "\\.so[.0-9]*$" ".a" archive "${shared}")
      if(shared MATCHES "/lib(absl_|grpc|gpr|upb|address_sorting|cares|protobuf)[^/]*\\.so" AND EXISTS ${archive})
        set_target_properties(${target} PROPERTIES ${property} ${archive})
        list(APPEND GANGWAY_STATIC_ARCHIVES ${archive})
      endif()
    endforeach()
  endforeach()
endif()

find_program(GANGWAY_PROTOC protoc REQUIRED)
find_program(GANGWAY_GRPC_PLUGIN grpc_cpp_plugin REQUIRED)

# The CPU plugin, and the headers of the PJRT C API and of XLA's FFI, come from pinned wheels, which tools/setup.sh
# unpacks here. The plugin's own wheel has no header, so that comes from the oldest plugin which the runtime works with.
set(GANGWAY_WHEELS ${CMAKE_SOURCE_DIR}/.deps CACHE PATH "Folder with the unpacked plugin and FFI headers")
set(GANGWAY_PJRT_INCLUDE ${GANGWAY_WHEELS}/xla_cpu_pjrt/include)
set(GANGWAY_PJRT_PLUGIN ${GANGWAY_WHEELS}/xla_cpu/pjrt_c_api_cpu_plugin.so)
set(GANGWAY_OLDER_PLUGIN ${GANGWAY_WHEELS}/xla_cpu_pjrt/xla_cpu_pjrt.so)
set(GANGWAY_FFI_INCLUDE ${GANGWAY_WHEELS}/xla_ffi/include)
# As binaries name them (base/package.h), so that the path of this repository is in none of them.
set(GANGWAY_PJRT_PLUGIN_NAME ${GANGWAY_PJRT_PLUGIN})
set(GANGWAY_OLDER_PLUGIN_NAME ${GANGWAY_OLDER_PLUGIN})
cmake_path(IS_PREFIX CMAKE_SOURCE_DIR ${GANGWAY_PJRT_PLUGIN} NORMALIZE is_inside)
if(is_inside)
  cmake_path(RELATIVE_PATH GANGWAY_PJRT_PLUGIN_NAME BASE_DIRECTORY ${CMAKE_SOURCE_DIR})
  cmake_path(RELATIVE_PATH GANGWAY_OLDER_PLUGIN_NAME BASE_DIRECTORY ${CMAKE_SOURCE_DIR})
endif()
foreach(needed ${GANGWAY_PJRT_INCLUDE}/pjrt_c_api.h ${GANGWAY_PJRT_PLUGIN} ${GANGWAY_OLDER_PLUGIN} ${GANGWAY_FFI_INCLUDE}/xla/ffi/api/ffi.h)
  if(NOT EXISTS ${needed})
    message(FATAL_ERROR "${needed} is missing: run tools/setup.sh first")
  endif()
endforeach()

# OpenBLAS's flavour with POSIX threads, the only one that several threads may call at once. It is found by path, to
# ignore the alternatives system, and loaded at run time, not linked. lapack.h comes from liblapacke-dev.
find_library(GANGWAY_OPENBLAS libopenblas.so.0 REQUIRED NO_DEFAULT_PATH
             PATHS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/openblas-pthread)
find_path(GANGWAY_OPENBLAS_INCLUDE cblas.h REQUIRED NO_DEFAULT_PATH
          PATHS /usr/include/${CMAKE_LIBRARY_ARCHITECTURE}/openblas-pthread)

if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  # Debian's libraries are built with GCC 12; since version 18, clang mangles constrained templates differently.
  add_compile_options(-fclang-abi-compat=17)
endif()

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env GANGWAY_SOURCE=${CMAKE_SOURCE_DIR}
                                  ${CMAKE_SOURCE_DIR}/tools/compile_cached)
endif()
find_program(MOLD mold)
if(MOLD)
  add_link_options(-fuse-ld=mold)
endif()
