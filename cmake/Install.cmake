# cmake --install: the tool, the shared library, the headers, and the files by
# which find_package(ecphory) and pkg-config find them.
include(CMakePackageConfigHelpers)

install(TARGETS ecphory_shared ecphory_engram_shared EXPORT ecphory-targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS ecphory RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/ecphory
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

set(ECPHORY_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/ecphory)
install(EXPORT ecphory-targets NAMESPACE ecphory:: DESTINATION ${ECPHORY_CMAKE_DIR})
configure_package_config_file(
  ${PROJECT_SOURCE_DIR}/cmake/ecphory-config.cmake.in
  ${PROJECT_BINARY_DIR}/ecphory-config.cmake
  INSTALL_DESTINATION ${ECPHORY_CMAKE_DIR})
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(
  ${PROJECT_BINARY_DIR}/ecphory-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES
  ${PROJECT_BINARY_DIR}/ecphory-config.cmake
  ${PROJECT_BINARY_DIR}/ecphory-config-version.cmake
  DESTINATION ${ECPHORY_CMAKE_DIR})

# A .pc file finds the prefix from its own place, which `cmake --install --prefix`
# moves. An absolute CMAKE_INSTALL_LIBDIR stays as it is, any other is below the
# prefix.
set(ECPHORY_PC_PREFIX ${CMAKE_INSTALL_PREFIX})
if(NOT IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
  set(up /prefix)
  cmake_path(RELATIVE_PATH up
    BASE_DIRECTORY /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig)
  set(ECPHORY_PC_PREFIX "\${pcfiledir}/${up}")
endif()
foreach(dir LIB INCLUDE)
  cmake_path(APPEND ECPHORY_PC_${dir}DIR "\${prefix}" ${CMAKE_INSTALL_${dir}DIR})
endforeach()
foreach(name ecphory ecphory-engram)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/${name}.pc.in
    ${PROJECT_BINARY_DIR}/${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${name}.pc
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()
