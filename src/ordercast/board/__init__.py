"""A bulletin board on a feed, as web pages: what `ordercast board` serves."""
