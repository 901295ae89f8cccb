# keel_component(<target> SOURCES f... [LINK t...] [REQUIRES pkg...] [LIBS_PRIVATE -l...])
# One library: alias, warnings, visibility, SONAME, install, pkg-config; LIBS_PRIVATE is what users of
# its static form link besides libm and threads.
function(keel_component target)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK;REQUIRES;LIBS_PRIVATE" ${ARGN})
  string(REGEX REPLACE "^keel_" "" short ${target})
  add_library(${target} ${ARG_SOURCES})
  add_library(keel::${short} ALIAS ${target})
  keel_compile_settings(${target})
  set_target_properties(${target} PROPERTIES
    EXPORT_NAME ${short}
    POSITION_INDEPENDENT_CODE ON
    VERSION ${PROJECT_VERSION}
    SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  target_include_directories(${target} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
    $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(${target} ${ARG_LINK})
  install(TARGETS ${target} EXPORT keelTargets)

  list(JOIN ARG_REQUIRES ", " KEEL_PC_REQUIRES)
  list(JOIN ARG_LIBS_PRIVATE " " KEEL_PC_LIBS_PRIVATE)
  set(KEEL_PC_NAME ${target})
  # Libraries may lie deeper than in lib/, as in Debian's lib/<triplet>.
  file(RELATIVE_PATH KEEL_PC_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
  configure_file(${PROJECT_SOURCE_DIR}/runtime/cmake/keel.pc.in ${PROJECT_BINARY_DIR}/${target}.pc
    @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${target}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endfunction()

# What every library object is compiled with.  The floating-point flags are part of the numerics:
# no contraction, so that each rounding stands where the source writes it; no traps, without which
# the codec loops are not vectorised.
function(keel_compile_settings target)
  set_target_properties(${target} PROPERTIES
    C_STANDARD 11
    C_STANDARD_REQUIRED ON
    C_EXTENSIONS OFF
    C_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON)
  target_include_directories(${target} PRIVATE
    ${PROJECT_SOURCE_DIR}/runtime
    ${PROJECT_SOURCE_DIR}/collectives
    ${PROJECT_SOURCE_DIR}/formats)
  target_compile_definitions(${target} PRIVATE _POSIX_C_SOURCE=200809L)
  target_compile_options(${target} PRIVATE
    -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes
    -ffp-contract=off -fno-trapping-math -fno-math-errno
    $<$<BOOL:${KEEL_WERROR}>:-Werror>)
endfunction()

# Export file, package configuration and version: find_package(keel).
function(keel_install_package)
  set(dir ${CMAKE_INSTALL_LIBDIR}/cmake/keel)
  install(EXPORT keelTargets NAMESPACE keel:: DESTINATION ${dir})
  configure_package_config_file(runtime/cmake/keelConfig.cmake.in keelConfig.cmake
    INSTALL_DESTINATION ${dir})
  write_basic_package_version_file(keelConfigVersion.cmake COMPATIBILITY SameMinorVersion)
  install(FILES
    ${PROJECT_BINARY_DIR}/keelConfig.cmake
    ${PROJECT_BINARY_DIR}/keelConfigVersion.cmake
    DESTINATION ${dir})
endfunction()
