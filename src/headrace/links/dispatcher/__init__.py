"""Dispatchers: records of this site's topics, sent to the sites that want them."""
