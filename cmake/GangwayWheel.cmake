# What the wheel holds beside the Python package (pyproject.toml): the PJRT plugin's libraries in the package's folder,
# the binary in _bin, XLA's CPU plugin in _plugins, in _libs the shared libraries of Debian that the binary needs, and
# in _copyright the terms of XLA's plugin, and what Debian says of these libraries and of those that the binary holds.
# GANGWAY_WHEEL_CPU_PLUGIN=OFF leaves out XLA's plugin, two thirds of the wheel. The C library, the C++ runtime and the
# loader are the system's: Debian 12's or newer, which a plugin for an accelerator may need as well.
if(NOT SKBUILD)
  return()
endif()
# An RPATH, not a RUNPATH: it also holds for what the libraries need in turn.
set_target_properties(gangway PROPERTIES INSTALL_RPATH "$ORIGIN/../_libs")
target_link_options(gangway PRIVATE -Wl,--disable-new-dtags)
install(TARGETS gangway RUNTIME DESTINATION gangway/_bin)
install(TARGETS gangway_pjrt gangway_pjrt_grpc LIBRARY DESTINATION gangway)
option(GANGWAY_WHEEL_CPU_PLUGIN "XLA's CPU plugin is in the wheel" ON)
if(GANGWAY_WHEEL_CPU_PLUGIN)
  install(FILES ${GANGWAY_PJRT_PLUGIN} DESTINATION gangway/_plugins)
  install(DIRECTORY ${GANGWAY_WHEELS}/xla_cpu/licenses/ DESTINATION gangway/_copyright/xla_cpu)
endif()

install(CODE "set(binary [[$<TARGET_FILE:gangway>]])\nset(openblas [[${GANGWAY_OPENBLAS}]])\n\
              set(archives [[${GANGWAY_STATIC_ARCHIVES}]])")
install(CODE [[
  file(GET_RUNTIME_DEPENDENCIES EXECUTABLES ${binary} LIBRARIES ${openblas} RESOLVED_DEPENDENCIES_VAR found
       PRE_EXCLUDE_REGEXES "^lib(c|m|dl|rt|pthread|resolv|stdc\\+\\+|gcc_s)\\.so" "^ld-linux")
  foreach(library ${found} ${openblas})
    get_filename_component(name ${library} NAME)  # the one by which others need it
    get_filename_component(real ${library} REALPATH)
    file(INSTALL DESTINATION ${CMAKE_INSTALL_PREFIX}/gangway/_libs FILES ${real} RENAME ${name})
    list(APPEND files ${real})
  endforeach()
  list(APPEND files ${archives})
  list(TRANSFORM files REPLACE ".*/" "*/")
  execute_process(COMMAND dpkg-query -S ${files} OUTPUT_VARIABLE owners COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "[^\n:]+:[^\n]*" owners "${owners}")
  list(TRANSFORM owners REPLACE "[:,].*" "")
  list(REMOVE_DUPLICATES owners)
  foreach(package ${owners})
    file(INSTALL DESTINATION ${CMAKE_INSTALL_PREFIX}/gangway/_copyright
         FILES /usr/share/doc/${package}/copyright RENAME ${package})
  endforeach()
]])
