"""`lakeshore` under its other name: the same module objects, all the way down."""

from lakeshore._alias import install

install(__name__, "lakeshore")
