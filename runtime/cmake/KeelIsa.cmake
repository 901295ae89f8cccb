# keel_isa_sources(<target> f...)
# Compile the files once per instruction set, with KEELI_ISA naming the build; the target chooses at
# run time (runtime/cpu/dispatch.c).  Off x86-64 there is the baseline alone.
set(KEEL_ISA_LIST baseline)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  list(APPEND KEEL_ISA_LIST v3 v4)
endif()

function(keel_isa_sources target)
  foreach(isa IN LISTS KEEL_ISA_LIST)
    set(objects ${target}_${isa})
    add_library(${objects} OBJECT ${ARGN})
    keel_compile_settings(${objects})
    set_target_properties(${objects} PROPERTIES POSITION_INDEPENDENT_CODE ON)
    target_include_directories(${objects} PRIVATE
      ${PROJECT_SOURCE_DIR}/include
      ${PROJECT_BINARY_DIR}/include)
    target_compile_definitions(${objects} PRIVATE KEELI_ISA=${isa})
    target_compile_options(${objects} PRIVATE -O3)
    if(NOT isa STREQUAL "baseline")
      target_compile_options(${objects} PRIVATE -march=x86-64-${isa})
      target_compile_definitions(${target} PRIVATE KEELI_HAVE_${isa})
    endif()
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:${objects}>)
  endforeach()
endfunction()
