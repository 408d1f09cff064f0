"""headrace: real-time event pipelines in Python, on Kafka and PySpark.

``__init__.pyi`` says where each public name is. A name is imported when it is used: the Python
workers of Spark, a dozen for each query, need few of them.
"""

from headrace.lazy_names import lazy_names

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
