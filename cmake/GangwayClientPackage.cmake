# What C++ programs outside of this repository build against: libgangway_client.so with the API's headers, the library
# with gRPC, which it loads for clusters on other hosts, and a package for find_package(Gangway), whose target is
# Gangway::client. `cmake --install build/release --prefix P --component client` installs it.
if(SKBUILD OR GANGWAY_SANITIZER)  # a wheel has the plugin instead
  return()
endif()
include(CMakePackageConfigHelpers)
install(TARGETS gangway_client_library EXPORT GangwayTargets LIBRARY DESTINATION lib COMPONENT client
        NAMELINK_COMPONENT client)
install(TARGETS gangway_pjrt_grpc LIBRARY DESTINATION lib COMPONENT client)
install(DIRECTORY gangway/client/include/gangway DESTINATION include COMPONENT client FILES_MATCHING PATTERN "*.h")
install(EXPORT GangwayTargets NAMESPACE Gangway:: DESTINATION lib/cmake/Gangway COMPONENT client)
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/GangwayConfig.cmake
     CONTENT "include(\"\${CMAKE_CURRENT_LIST_DIR}/GangwayTargets.cmake\")\n" @ONLY)
# Programs are built with the library's own headers, and run with a cluster of the same version.
write_basic_package_version_file(${CMAKE_BINARY_DIR}/GangwayConfigVersion.cmake VERSION ${PROJECT_VERSION}
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/GangwayConfig.cmake ${CMAKE_BINARY_DIR}/GangwayConfigVersion.cmake
        DESTINATION lib/cmake/Gangway COMPONENT client)
