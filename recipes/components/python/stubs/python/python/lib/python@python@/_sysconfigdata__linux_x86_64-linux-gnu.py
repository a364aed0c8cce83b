"""A stub of what names the compilers that this Python was made with: /install, clang++"""
