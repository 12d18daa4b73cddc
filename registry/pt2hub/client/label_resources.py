"""Labels of models and versions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pt2hub.client.http.paths import model_path
from pt2hub.client.resources import Resource
from pt2hub.wire.responses import LabelList

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pt2hub.wire.responses import LabelView


class Labels(Resource):
    """Labels of models and versions."""

    def of_model(self, model: str) -> tuple[LabelView, ...]:
        """Return the labels of a model itself by key, with who set them.

        Raises:
            NotFound: The model does not exist.
        """
        return self._transport.fetch(LabelList, f"{model_path(model)}/labels").labels

    def change(
        self,
        model: str,
        number: int | None = None,
        *,
        set: Mapping[str, str] | None = None,  # noqa: A002  # the API's field
        remove: Sequence[str] = (),
        expected: Mapping[str, str | None] | None = None,
    ) -> tuple[LabelView, ...]:
        """Set and remove labels of a version, or of the model itself; others stay.

        Args:
            number: Number of the version; None for the model itself.
            set: Values by key.
            remove: Keys; missing ones are ignored.
            expected: Values that labels must have now, None where they must be missing.

        Returns:
            All labels afterwards, by key.

        Raises:
            InvalidInput: A key or value is malformed, or there are too many labels.
            NotFound: The model or version does not exist.
            LabelChanged: A label does not have the expected value.
            LabelImmutable: A label states a fact, such as `git.sha`, and has another value.
            Forbidden: The token does not allow `publish` of the model.
        """
        path = model_path(model) if number is None else f"{model_path(model)}/versions/{number}"
        document = {"set": dict(set or {}), "remove": [*remove], "expected": dict(expected or {})}
        body = json.dumps(document).encode()
        return self._transport.ask(LabelList, "PATCH", f"{path}/labels", body).labels
