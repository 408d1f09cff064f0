from pathlib import Path

import pyspark

from headrace.pipelines.session import spark_home


def test_workers_find_no_zip_that_they_would_compile_anew(tmp_path):
    home = spark_home(tmp_path / "spark-home")
    assert (home / "bin" / "spark-submit").exists()
    assert (home / "jars").resolve() == Path(pyspark.__file__).parent / "jars"
    assert not (home / "python").exists()


def test_a_link_to_another_spark_is_replaced(tmp_path):
    stale = tmp_path / "spark-home"
    stale.mkdir()
    (stale / "jars").symlink_to(tmp_path)
    assert (spark_home(stale) / "jars").resolve() == Path(pyspark.__file__).parent / "jars"
