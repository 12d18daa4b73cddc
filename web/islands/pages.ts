/** Scripts of every page: local times, copy buttons, search and logout. */

import { updateTimes, showTimes } from "./times";
import { enableCopyButtons } from "./copy-buttons";
import { enableSearch } from "./search";
import { reloadAfterLogout } from "./logout";

showTimes(document);
updateTimes(document);
enableCopyButtons(document);
enableSearch(document);
reloadAfterLogout();
