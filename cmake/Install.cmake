# cmake --install: the tool, the shared library, the headers, and the files by
# which find_package(ecphory) and pkg-config find them.
include(CMakePackageConfigHelpers)

install(TARGETS ecphory_shared ecphory_engram_shared EXPORT ecphory-targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS ecphory RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY ${CMAKE_SOURCE_DIR}/include/ecphory
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

set(ECPHORY_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/ecphory)
install(EXPORT ecphory-targets NAMESPACE ecphory:: DESTINATION ${ECPHORY_CMAKE_DIR})
configure_package_config_file(
  ${CMAKE_SOURCE_DIR}/cmake/ecphory-config.cmake.in
  ${CMAKE_BINARY_DIR}/ecphory-config.cmake
  INSTALL_DESTINATION ${ECPHORY_CMAKE_DIR})
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(
  ${CMAKE_BINARY_DIR}/ecphory-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES
  ${CMAKE_BINARY_DIR}/ecphory-config.cmake
  ${CMAKE_BINARY_DIR}/ecphory-config-version.cmake
  DESTINATION ${ECPHORY_CMAKE_DIR})

# An absolute CMAKE_INSTALL_LIBDIR stays as it is, any other is below the prefix.
foreach(dir LIB INCLUDE)
  cmake_path(APPEND ECPHORY_PC_${dir}DIR "\${prefix}" ${CMAKE_INSTALL_${dir}DIR})
endforeach()
foreach(name ecphory ecphory-engram)
  configure_file(${CMAKE_SOURCE_DIR}/cmake/${name}.pc.in
    ${CMAKE_BINARY_DIR}/${name}.pc @ONLY)
  install(FILES ${CMAKE_BINARY_DIR}/${name}.pc
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()
