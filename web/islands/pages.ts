/** Scripts of every page: local times, copy buttons, search, filters, menus, keys and logout. */

import { updateTimes, showTimes } from "./times";
import { enableCopyButtons } from "./copy-buttons";
import { enableKeyboard } from "./keyboard";
import { enableSearch } from "./search";
import { reloadAfterLogout } from "./logout";
import { closeMenus } from "./menus";
import { shortenAddresses } from "./filters";

showTimes(document);
updateTimes(document);
enableCopyButtons(document);
enableSearch(document);
enableKeyboard(document);
closeMenus(document);
shortenAddresses(document);
reloadAfterLogout();
