"""headrace: real-time event pipelines in Python, on Kafka and PySpark.

``__init__.pyi`` says where each public name is. A name is imported when it is used: the Python
workers of Spark, a dozen for each query, need few of them.
"""

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
