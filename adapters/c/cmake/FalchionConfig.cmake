# find_package(Falchion) with this file in PREFIX/lib/cmake/Falchion, the libraries in PREFIX/lib and the headers in PREFIX/include.
# Gives the target falchion::falchion.
get_filename_component(_falchion_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET falchion::falchion)
  add_library(falchion::falchion SHARED IMPORTED)
  set_target_properties(falchion::falchion PROPERTIES
    IMPORTED_LOCATION "${_falchion_prefix}/lib/libfalchion_c.so"
    IMPORTED_NO_SONAME TRUE
    INTERFACE_INCLUDE_DIRECTORIES "${_falchion_prefix}/include")
endif()
