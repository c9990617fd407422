"""The recipe of this checkout for Conan 2: conan create cmake/packages/conan"""
import pathlib
import re

from conan import ConanFile
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy


class Slm(ConanFile):
    name = "slm"
    description = "Header-only C++20 inference of small language models with lossless speculative decoding"
    license = "Apache-2.0"
    package_type = "header-library"
    settings = "os", "arch", "compiler", "build_type"
    generators = "CMakeDeps"

    @property
    def _checkout(self):
        return pathlib.Path(self.recipe_folder).resolve().parents[2]

    def set_version(self):
        macros = (self._checkout / "include/slm/core/macros.hpp").read_text()
        self.version = ".".join(re.findall(r"^#define SLM_VERSION_\w+ (\d+)$", macros, re.M))

    def export_sources(self):
        for pattern in ("CMakeLists.txt", "LICENSE", "include/*", "cmake/*", "docs/CMakeLists.txt", "docs/Doxyfile.in"):
            copy(self, pattern, self._checkout, self.export_sources_folder)

    def requirements(self):
        self.requires("nlohmann_json/[>=3.10 <4]", transitive_headers=True)

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self)
        for part in ("TESTS", "EXAMPLES", "BENCH", "C_API"):
            toolchain.cache_variables[f"SLM_BUILD_{part}"] = False
        toolchain.generate()

    def build(self):
        CMake(self).configure()

    def package(self):
        copy(self, "LICENSE", self.source_folder, pathlib.Path(self.package_folder) / "licenses")
        CMake(self).install()

    def package_id(self):
        self.info.clear()

    def package_info(self):
        # slm's own CMake package has functions besides the target.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = ["share/cmake/slm"]
        self.cpp_info.bindirs = self.cpp_info.libdirs = []
        if self.settings.os in ("Linux", "FreeBSD"):
            self.cpp_info.system_libs = ["pthread"]
