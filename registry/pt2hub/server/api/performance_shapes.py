"""Parameters and answers about performance, as OpenAPI describes them."""

from flask_openapi3.models.tag import Tag

PERFORMANCE = Tag(name="performance", description="How fast artifacts are, where, and since when.")
