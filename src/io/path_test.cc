#include "io/path.h"

#include <gtest/gtest.h>

namespace ecphory {
namespace {

TEST(Path, AnExtensionIsFoundInEitherCase) {
  for (const char* name : {"x.gguf", "a/b.c/x.GGUF", "x.tar.Gguf", "..gguf"}) {
    EXPECT_TRUE(HasExtension(name, ".gguf")) << name;
  }
  for (const char* name : {"", "gguf", ".gguf", "a.gguf/", "a.gguf/x", "x.ggu",
                           "x.gguf2", "x.gguf.part", "x.\xc7guf"}) {
    EXPECT_FALSE(HasExtension(name, ".gguf")) << name;
  }
}

}  // namespace
}  // namespace ecphory
