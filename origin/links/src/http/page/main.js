// The views of links, which the console's shell loads when one is opened.

import { detail as detailOf } from "./detail.js";
import { domains as domainsOf } from "./domains.js";
import { home as homeOf } from "./home.js";
import { importer as importerOf } from "./import.js";

export const home = async (desk) => ["Links", await homeOf(desk)];
export const importer = async (desk) => ["Import links", await importerOf(desk)];
export const domains = async (desk, id) => [id ? `Domain ${id}` : "Domains", await domainsOf(desk, id ?? null)];
export const detail = async (desk, domain, code, tab) => [code, await detailOf(desk, { domain, code }, tab)];
