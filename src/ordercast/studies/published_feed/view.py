"""View: the correspondents of a node, and theirs (Table 1).

Adly, Kumar: HPP, a hierarchical propagation protocol (1994), section 3. Row 1 of the paper's matrix
holds a node's own correspondents, row 2 those of its parent, the rest those of its children.
"""

from __future__ import annotations

from ordercast.studies.published_feed.options import PublishedFeedOptions
from ordercast.studies.published_feed.packets import Row


class TreeView:
    __slots__ = ("children", "grandparent", "of_children", "parent", "siblings")

    def __init__(self, own: Row, of_parent: Row, of_children: dict[str, tuple[str, ...]]) -> None:
        self.parent: str | None = own.parent or None
        self.children = list(own.children)
        self.grandparent: str | None = of_parent.parent or None
        self.siblings = list(of_parent.children)  # the node itself included
        self.of_children = {child: list(row) for child, row in of_children.items()}

    @classmethod
    def first(cls, name: str, members: tuple[str, ...], options: PublishedFeedOptions) -> TreeView:
        root = members[0]

        def row(of: str | None) -> Row:
            if of is None:
                return Row("", ())
            parent = options.parent_of(of, root) or ""
            return Row(parent, tuple(options.children_of(of, root, members)))

        own = row(name)
        below = {child: row(child).children for child in own.children}
        return cls(own, row(own.parent or None), below)

    @property
    def correspondents(self) -> list[str]:
        return self.children if self.parent is None else [self.parent, *self.children]

    def own_row(self) -> Row:
        return Row(self.parent or "", tuple(self.children))

    def parent_row(self) -> Row:
        return Row(self.grandparent or "", tuple(self.siblings))

    def set_parent(self, parent: str, row: Row) -> None:
        self.parent = parent
        self.grandparent = row.parent or None
        self.siblings = list(row.children)

    def add_child(self, child: str, row: tuple[str, ...]) -> None:
        self.children.append(child)
        self.of_children[child] = list(row)

    def remove_child(self, child: str) -> None:
        self.children.remove(child)
        self.of_children.pop(child, None)

    def coordinator_of(self, name: str) -> str | None:
        """Who takes over for a failed correspondent: its first child, by name."""
        children = self.siblings if name == self.parent else self.of_children.get(name, [])
        return min(children, default=None)
