"""Builds this project with the package of the last `conan create`, and runs it."""
import os

from conan import ConanFile
from conan.tools.cmake import CMake, cmake_layout


class Consumer(ConanFile):
    settings = "os", "arch", "compiler", "build_type"
    generators = "CMakeDeps", "CMakeToolchain"

    def requirements(self):
        self.requires(self.tested_reference_str)

    def layout(self):
        cmake_layout(self)

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def test(self):
        program = os.path.join(self.cpp.build.bindir, "consumer")
        self.run(f'{program} "{os.environ["CONSUMER_MODEL"]}" "{os.environ["CONSUMER_TEXT"]}"')
