/** What every page has: times in the reader's zone, buttons that copy, search as you type, an end to a session. */

import { keepTimes, showTimes } from "./times";
import { enableCopying } from "./copying";
import { enableSearch } from "./search";
import { forgetAfterSigningOut } from "./leaving";

showTimes(document);
keepTimes(document);
enableCopying(document);
enableSearch(document);
forgetAfterSigningOut();
