"""Pages as one HTML file that opens offline: the skeleton with its theme, and the elements that pages are made of."""
