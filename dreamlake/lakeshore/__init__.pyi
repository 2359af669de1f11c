# For type checkers only: at run time this module is `lakeshore` itself.
from lakeshore import *
