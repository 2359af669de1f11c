# For type checkers only: at run time this module is `lakeshore.testing` itself.
from lakeshore.testing import *
