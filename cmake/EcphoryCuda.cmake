# The CUDA backend: part of the library and the tool when nvcc is found, or as
# ECPHORY_ENABLE_CUDA says. The CUDA runtime is linked statically, so that what
# is built runs where there is no CUDA. Sets ECPHORY_CUDA for the rest of the
# build.
set(ECPHORY_ENABLE_CUDA AUTO CACHE STRING "Build the CUDA backend: ON, OFF or AUTO (when nvcc is found)")
set_property(CACHE ECPHORY_ENABLE_CUDA PROPERTY STRINGS AUTO ON OFF)
set(ECPHORY_CUDA OFF)

if(NOT ECPHORY_SANITIZE AND NOT ECPHORY_ENABLE_CUDA STREQUAL "OFF")
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(ECPHORY_CUDA ON)
  elseif(NOT ECPHORY_ENABLE_CUDA STREQUAL "AUTO")
    message(FATAL_ERROR "ECPHORY_ENABLE_CUDA=${ECPHORY_ENABLE_CUDA}, but no CUDA compiler was found: "
      "put nvcc (12.0 or later) on the PATH or set CMAKE_CUDA_COMPILER")
  endif()
endif()

if(ECPHORY_CUDA)
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    # Machine code for Hopper, and code that the driver translates for whatever
    # else there is from Ampere on.
    set(CMAKE_CUDA_ARCHITECTURES 90a-real 80-virtual)
  endif()
  enable_language(CUDA)
  set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
  # CMake 3.25 does not know that nvcc 12 takes C++20.
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  endif()
  find_package(CUDAToolkit 12.0 REQUIRED)
endif()
message(STATUS "CUDA backend: ${ECPHORY_CUDA}")
